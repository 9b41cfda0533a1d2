"""Availability of the programs that screens require."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

__all__ = ["WINDOW_MANAGER", "can_have_screens", "can_manage_windows", "missing_for_screens"]

WINDOW_MANAGER = "blackbox"


def can_have_screens() -> bool:
    """Return whether everything that screens require is installed."""
    return not missing_for_screens()


def missing_for_screens() -> dict[str, str]:
    """Return the missing requirements of screens, each with the command that installs it."""
    missing = {}
    if shutil.which("Xvfb") is None:
        missing["Xvfb"] = "apt install xvfb"
    if find_spec("xcffib") is None:
        missing["xcffib"] = "pip install 'coding-gym[display]'"
    return missing


def can_manage_windows() -> bool:
    """Return whether a window manager is installed."""
    return shutil.which(WINDOW_MANAGER) is not None
