"""The names of ``coding_env``, which the first test imports: the import takes seconds in each process that collects tests."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = ("CodeAction", "CodingEnv", "GenericAction", "GenericEnvClient")


def __getattr__(name: str) -> Any:
    # Tools look for attributes that modules rarely have.
    if name not in _NAMES:
        raise AttributeError(name)
    return getattr(importlib.import_module("tests.openenv.coding_env"), name)
