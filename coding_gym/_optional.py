"""Optional libraries, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from coding_gym.errors import ConfigurationError

__all__ = ["import_extra"]


def import_extra(module: str, *, extra: str) -> Any:
    """Return a module that an extra of this package installs.

    Raises:
        ConfigurationError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"This requires {module.partition('.')[0]}: pip install 'coding-gym[{extra}]' ({error})"
        raise ConfigurationError(message) from error
