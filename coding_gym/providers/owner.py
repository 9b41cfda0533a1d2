"""Whose a sandbox is: a process, named so that others can tell whether it still lives."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coding_gym.errors import SandboxStartError

__all__ = ["LABEL_OWNER", "Owner", "new_runtime_directory", "sweep_runtime_directories"]

LABEL_OWNER = "coding_gym.owner"
"""The label of a container that says whose it is."""

_OWNER_FILE = "owner"
_LONGEST_BASE = 75
"""Bytes of a path below which there is room for another 32: the path of a Unix socket has at most 107."""

_STARTTIME_FIELD = 19
"""The position of the start time in /proc/PID/stat after the process's name."""


@dataclass(frozen=True)
class Owner:
    """A process.

    Attributes:
        place: The machine, its boot and the pid namespace that the pid counts in.
        pid: Its process id.
        started: When it started, in clock ticks since the boot: pids are used again.
    """

    place: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """Return the calling process."""
        return cls(_place(), os.getpid(), _start_time(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Return the owner that ``str`` wrote.

        Raises:
            ValueError: It is none.
        """
        place, pid, started = text.rsplit(":", 2)
        return cls(place, int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.place}:{self.pid}:{self.started}"

    def is_known_dead(self) -> bool:
        """Say whether the process is certainly gone: never of one on another machine or in another container."""
        return self.place == _place() and _start_time(self.pid) != self.started


@contextlib.contextmanager
def new_runtime_directory() -> Iterator[Path]:
    """Make a directory for one sandbox, closed to other users, that says whose it is; it goes if the sandbox does not start.

    Raises:
        SandboxStartError: It cannot be made, or what is to be written there cannot.
    """
    base = _runtime_base()
    directory = None
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        _check_runtime_base(base)
        directory = Path(tempfile.mkdtemp(dir=base))
        (directory / _OWNER_FILE).write_text(str(Owner.current()))
        yield directory
    except BaseException as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        # Of the kernel, not of a network.
        if isinstance(error, OSError) and error.errno is not None:
            message = f"No sandbox can be started in {base}: {error.strerror or error}. Make room there, or set XDG_RUNTIME_DIR"
            raise SandboxStartError(message) from error
        raise


def sweep_runtime_directories() -> list[Path]:
    """Remove the directories of processes that are gone; returns them."""
    removed = []
    for directory in _runtime_base().glob("*"):
        try:
            owner = Owner.parse((directory / _OWNER_FILE).read_text())
        except (OSError, ValueError):
            # Not ours, or not ready yet.
            continue
        if owner.is_known_dead():
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
    return removed


def _check_runtime_base(base: Path) -> None:
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = f"Expected {base} to be a directory of this user that is closed to others; remove it, or set XDG_RUNTIME_DIR"
        raise SandboxStartError(message)
    if len(os.fsencode(base)) > _LONGEST_BASE:
        message = f"The path {base} is too long for Unix sockets in it; set XDG_RUNTIME_DIR to a shorter one"
        raise SandboxStartError(message)


def _runtime_base() -> Path:
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(parent) / f"coding-gym-{os.getuid()}"


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_time(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[_STARTTIME_FIELD])
