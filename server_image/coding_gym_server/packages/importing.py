"""Import of libraries in processes that others are forked from."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable

__all__ = ["import_installed"]


def import_installed(names: Iterable[str]) -> None:
    """Import modules that are installed; ignore all others, and those that fail."""
    for name in names:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
