"""What there is to make screens of."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

__all__ = ["WINDOW_MANAGER", "can_have_screens", "can_manage_windows"]

WINDOW_MANAGER = "blackbox"


def can_have_screens() -> bool:
    """Say whether what screens need is installed."""
    return shutil.which("Xvfb") is not None and find_spec("Xlib") is not None


def can_manage_windows() -> bool:
    """Say whether there is a window manager."""
    return shutil.which(WINDOW_MANAGER) is not None
