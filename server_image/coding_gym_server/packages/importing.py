"""Imports: of libraries in processes that others are forked from, and in source code."""

from __future__ import annotations

import ast
import contextlib
import importlib
from collections.abc import Iterable

__all__ = ["import_installed", "imports_module"]


def import_installed(names: Iterable[str]) -> None:
    """Import modules that are installed; ignore all others, and those that fail."""
    for name in names:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)


def imports_module(tree: ast.Module, name: str) -> bool:
    """Return whether source code imports a module, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == name for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == name and not node.level:
            return True
    return False
