"""Window manager for programs that rely on one: titles, borders, window placement, fullscreen."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from coding_gym_server.display.availability import WINDOW_MANAGER
from coding_gym_server.display.windows import WindowList
from coding_gym_server.display.xvfb import Xvfb

__all__ = ["start_window_manager"]

_FILES = Path(__file__).with_name("blackbox")
_SETTINGS = """\
session.styleFile: {files}/style
session.menuFile: {files}/menu
session.focusModel: ClickToFocus
session.windowPlacement: RowSmartPlacement
session.screen0.enableToolbar: False
session.screen0.slit.autoHide: True
session.screen0.workspaces: 1
"""
_READY_TIMEOUT = 3.0
_POLL_SECONDS = 0.005


def start_window_manager(xvfb: Xvfb, desktop: WindowList, directory: Path) -> subprocess.Popen[bytes]:
    """Start Blackbox, which is small and fast, and wait until it manages windows.

    Args:
        xvfb: The X server.
        desktop: Windows of the X server's display.
        directory: Writable directory for the window manager.

    Raises:
        RuntimeError: If it does not start in time.
    """
    settings = directory / "blackboxrc"
    settings.write_text(_SETTINGS.format(files=_FILES))
    environment = {**os.environ, "DISPLAY": xvfb.name, "XAUTHORITY": str(xvfb.authority), "HOME": str(directory)}
    process = subprocess.Popen(
        [WINDOW_MANAGER, "-rc", str(settings)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _READY_TIMEOUT
    while not desktop.is_managed():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            message = "the window manager does not start"
            raise RuntimeError(message)
        time.sleep(_POLL_SECONDS)
    return process
