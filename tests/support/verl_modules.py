"""Modules of verl, without the packages around them, whose ``__init__`` imports torch, transformers and tensordict.

verl is installed without its dependencies: ``pip install --no-deps verl==0.9.1``. The modules that are imported are verl's own,
unchanged; the packages above them are empty and have the same ``__path__``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

from tests.support.requirements import missing

__all__ = ["import_verl"]

_PACKAGES = ("verl", "verl.utils", "verl.utils.reward_score", "verl.tools")


def import_verl(name: str) -> ModuleType:
    """Import a module of verl, at the top of a module or in a test; skip if verl is not installed."""
    spec = importlib.util.find_spec("verl") if "verl" not in sys.modules else sys.modules["verl"].__spec__
    if spec is None or spec.submodule_search_locations is None:
        missing("extras", "verl is not installed: pip install --no-deps verl==0.9.1", module=True)
    root = Path(next(iter(spec.submodule_search_locations)))
    for package in _PACKAGES:
        if package not in sys.modules:
            stub = sys.modules[package] = ModuleType(package)
            stub.__path__ = [str(root.joinpath(*package.split(".")[1:]))]
            stub.__spec__ = spec if package == "verl" else None
    with warnings.catch_warnings():
        # Warnings of third-party modules should not become errors.
        warnings.simplefilter("ignore")
        return importlib.import_module(name)
