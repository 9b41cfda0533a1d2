"""Messages of envd's service ``process.Process`` in JSON."""

from __future__ import annotations

import posixpath
import signal
from typing import Annotated, Any

import msgspec

from coding_gym_e2b.failures import Code, RpcError

__all__ = [
    "Empty",
    "InputRequest",
    "InputStreamEvent",
    "SelectRequest",
    "Selector",
    "SignalRequest",
    "StartRequest",
    "UpdateRequest",
]

_SIGNALS = {
    "SIGNAL_SIGKILL": signal.SIGKILL,
    "SIGNAL_SIGTERM": signal.SIGTERM,
    9: signal.SIGKILL,
    15: signal.SIGTERM,
}
_HOME = "/home/user"
_Side = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class Empty(msgspec.Struct):
    """No fields."""


class Size(msgspec.Struct):
    """Size of a terminal in characters."""

    cols: _Side = 80
    rows: _Side = 24


class Pty(msgspec.Struct):
    """A terminal."""

    size: Size = msgspec.field(default_factory=Size)


class Config(msgspec.Struct, omit_defaults=True):
    """A program."""

    cmd: str
    args: list[str] = []
    envs: dict[str, str] = {}
    cwd: str | None = None

    @property
    def directory(self) -> str | None:
        """Its working directory, relative to the home directory, which is the default."""
        if not self.cwd or self.cwd == "~":
            return None
        return posixpath.join(_HOME, self.cwd[2:]) if self.cwd.startswith("~/") else self.cwd


class StartRequest(msgspec.Struct):
    """A process to start."""

    process: Config
    pty: Pty | None = None
    tag: str | None = None
    stdin: bool = True


class Selector(msgspec.Struct):
    """A process, by its pid or its tag."""

    pid: int | None = None
    tag: str | None = None


class SelectRequest(msgspec.Struct):
    """A process to connect to, or whose stdin to close."""

    process: Selector


class UpdateRequest(msgspec.Struct):
    """A process whose terminal gets another size."""

    process: Selector
    pty: Pty | None = None


class Input(msgspec.Struct):
    """Data for a process."""

    stdin: bytes = b""
    pty: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes to write."""
        return self.stdin or self.pty


class InputRequest(msgspec.Struct):
    """Data for a process."""

    process: Selector
    input: Input


class InputStart(msgspec.Struct):
    """The process that a stream of input is for."""

    process: Selector


class InputData(msgspec.Struct):
    """A part of a stream of input."""

    input: Input


class InputStreamEvent(msgspec.Struct):
    """A message of a stream of input."""

    start: InputStart | None = None
    data: InputData | None = None
    keepalive: Any = None


class SignalRequest(msgspec.Struct):
    """A signal for a process."""

    process: Selector
    signal: str | int = 0

    @property
    def number(self) -> int:
        """Number of the signal.

        Raises:
            RpcError: If it is another than SIGKILL and SIGTERM.
        """
        if self.signal not in _SIGNALS:
            message = f"Expected SIGNAL_SIGKILL or SIGNAL_SIGTERM, got {self.signal!r:.50}"
            raise RpcError(Code.INVALID_ARGUMENT, message)
        return _SIGNALS[self.signal]
