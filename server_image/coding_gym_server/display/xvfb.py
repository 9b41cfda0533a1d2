"""Xvfb: the X server that draws into memory (see Xvfb(1), Xserver(1))."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
from pathlib import Path

from coding_gym_server.display.authority import write_authority

__all__ = ["Xvfb"]

_STARTED_WITHIN = 10.0
_COLOR_DEPTH = 24


class Xvfb:
    """A running Xvfb that nobody can connect to but by an abstract socket and with a cookie.

    Args:
        directory: Where it keeps the screen and the cookie; to be readable by nobody else.
        width: Of the screen in pixels.
        height: Likewise.
        opengl: Whether it offers GLX.

    Raises:
        RuntimeError: It does not start.

    Attributes:
        name: What ``DISPLAY`` is for its clients.
        socket: The address of its socket.
        cookie: What its clients must present.
        authority: The file with the cookie.
        framebuffer: The file with the screen.
    """

    def __init__(self, directory: Path, *, width: int, height: int, opengl: bool) -> None:
        self.cookie = secrets.token_bytes(16)
        self.authority = directory / "authority"
        self.framebuffer = directory / "Xvfb_screen0"
        write_authority(self.authority, self.cookie)
        number_read, number_write = os.pipe()
        try:
            with (directory / "log").open("wb") as log:
                self.process = subprocess.Popen(
                    [
                        "Xvfb",
                        *("-displayfd", str(number_write)),
                        *("-screen", "0", f"{width}x{height}x{_COLOR_DEPTH}"),
                        *("-fbdir", str(directory)),
                        *("-auth", str(self.authority)),
                        *("-nolisten", "tcp", "-nolisten", "unix"),
                        *("-noreset", "-nocursor", "-br"),
                        # Shared memory needs no proxy, and knows no sessions.
                        *("-extension", "MIT-SHM"),
                        *(() if opengl else ("-extension", "GLX")),
                    ],
                    pass_fds=[number_write],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            os.close(number_write)
            number = _read_number(number_read)
        finally:
            os.close(number_read)
        if not number:
            self.process.kill()
            reason = (directory / "log").read_text(errors="replace").strip()[-500:]
            message = f"Xvfb does not start: {reason or f'it said nothing for {_STARTED_WITHIN:g} s'}"
            raise RuntimeError(message)
        self.name = f":{number}"
        self.socket = f"\0/tmp/.X11-unix/X{number}"


def _read_number(descriptor: int) -> str:
    """Return the number of its display, as soon as clients can connect; empty if it ends first."""
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], _STARTED_WITHIN)
        data = os.read(descriptor, 64) if ready else b""
        if not data:
            return ""
        text += data
    return text.decode().strip()
