"""Objects that users name as MODULE:NAME."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from coding_gym.errors import ConfigurationError

__all__ = ["import_named"]


def import_named(spec: str, what: str) -> Any:
    """Return what a module has by a name, which may contain dots; the module may lie in the current directory.

    Args:
        spec: ``MODULE:NAME``.
        what: What is expected, for errors.

    Raises:
        ConfigurationError: If it cannot be imported.
    """
    module, _, name = spec.partition(":")
    # As ``python -m`` does. Not "", since the directory may be another one when the module imports further ones.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"Expected {what} as MODULE:NAME, got {spec}: {error}"
        raise ConfigurationError(message) from error
    return found
