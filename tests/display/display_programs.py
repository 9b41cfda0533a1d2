"""Programs with windows, run in separate processes."""

from __future__ import annotations

import ast
import importlib.util
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from coding_gym_server.display.windows import WindowList
from coding_gym_server.protocol import Window
from tests.support.timing import eventually

__all__ = ["TOOLKITS", "Program", "XServer", "window_of"]

_PATIENCE = 5.0

TOOLKITS = [
    "tkinter",
    *(
        pytest.param(name, marks=pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed"))
        for name in ("PySide6", "pygame")
    ),
]


@dataclass(frozen=True)
class XServer:
    name: str
    authority: Path
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        quiet = {"SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1", "LANG": "C.UTF-8"}
        return {**os.environ, **quiet, "DISPLAY": self.name, "XAUTHORITY": str(self.authority)}


class Program:
    """Process that runs Python code, which prints one literal per line."""

    def __init__(self, source: str, server: XServer) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", source],
            env=server.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._printed = b""

    def read(self) -> object:
        assert self.process.stdout is not None
        while b"\n" not in self._printed:
            ready, _, _ = select.select([self.process.stdout], [], [], _PATIENCE)
            assert ready, "the program prints nothing"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, "the program has ended"
            self._printed += data
        line, _, self._printed = self._printed.partition(b"\n")
        return ast.literal_eval(line.decode())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def window_of(desktop: WindowList, title: str) -> Window:
    """Return the window with a title, waiting until it is shown."""
    found = eventually(lambda: [window for window in desktop.windows() if window.title == title])
    assert found, f"there is no window {title!r}"
    return found[0]
