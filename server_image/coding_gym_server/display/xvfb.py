"""Xvfb, an X server with an in-memory framebuffer (see Xvfb(1), Xserver(1))."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
from pathlib import Path

from coding_gym_server.workspace.xauthority import write_authority

__all__ = ["Xvfb"]

_START_TIMEOUT = 10.0
_COLOR_DEPTH = 24


class Xvfb:
    """Running Xvfb process, which accepts connections only on an abstract socket and with a cookie.

    Args:
        directory: Directory for the framebuffer and the cookie; must not be readable by other users or sessions.
        width: Width of the screen in pixels.
        height: Height of the screen in pixels.
        opengl: Whether to offer GLX.

    Raises:
        RuntimeError: If Xvfb does not start in time.

    Attributes:
        name: Value of ``DISPLAY`` for clients.
        socket: Address of the socket.
        cookie: X authority cookie that clients must present.
        authority: X authority file with the cookie.
        framebuffer: File of the framebuffer.
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
                        # Shared memory bypasses the proxy and is not isolated between sessions.
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
            message = f"Xvfb does not start: {reason or f'it reported nothing for {_START_TIMEOUT:g} s'}"
            raise RuntimeError(message)
        self.name = f":{number}"
        self.socket = f"\0/tmp/.X11-unix/X{number}"


def _read_number(descriptor: int) -> str:
    """Return the display number once clients can connect; empty if Xvfb exits first or is too slow."""
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], _START_TIMEOUT)
        data = os.read(descriptor, 64) if ready else b""
        if not data:
            return ""
        text += data
    return text.decode().strip()
