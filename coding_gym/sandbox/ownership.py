"""Process identity of a sandbox's owner, robust against PID reuse."""

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

__all__ = ["LABEL_OWNER", "OwnerProcess", "new_runtime_directory", "remove_orphaned_directories", "runtime_directories"]

LABEL_OWNER = "coding_gym.owner"
"""The container label that names the owner process."""

_OWNER_FILE = "owner"
_MAX_BASE_BYTES = 75
"""Maximum length of the base path in bytes: it leaves 32 of the 107 bytes of a Unix socket's path."""

_STARTTIME_FIELD = 19
"""Index of the start time among the fields after the process name in /proc/PID/stat."""


@dataclass(frozen=True)
class OwnerProcess:
    """Identity of a process.

    Attributes:
        host: Identity of the machine, its boot and the PID namespace.
        pid: Process id.
        started: Start time in clock ticks since boot, which distinguishes processes after PID reuse.
    """

    host: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> OwnerProcess:
        """Return the calling process."""
        return cls(_host(), os.getpid(), _start_time(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> OwnerProcess:
        """Parse the output of ``str``.

        Raises:
            ValueError: If it is malformed.
        """
        host, pid, started = text.rsplit(":", 2)
        return cls(host, int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    def is_known_dead(self) -> bool:
        """Return whether the process is certainly gone; always False for one on another machine or in another container."""
        return self.host == _host() and _start_time(self.pid) != self.started


@contextlib.contextmanager
def new_runtime_directory() -> Iterator[Path]:
    """Create a private directory for one sandbox, marked with its owner; remove it if the sandbox does not start.

    Raises:
        SandboxStartError: If it cannot be created or written.
    """
    base = _runtime_base()
    directory = None
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        _check_runtime_base(base)
        directory = Path(tempfile.mkdtemp(dir=base))
        (directory / _OWNER_FILE).write_text(str(OwnerProcess.current()))
        yield directory
    except BaseException as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        # Only errors of system calls have an errno, unlike network errors of the engine's client.
        if isinstance(error, OSError) and error.errno is not None:
            message = (
                f"No sandbox can be started in {base}: {error.strerror or error}. Free disk space there, or set XDG_RUNTIME_DIR"
            )
            raise SandboxStartError(message) from error
        raise


def remove_orphaned_directories() -> list[Path]:
    """Remove the directories of dead processes, and return them.

    Raises:
        SandboxStartError: If there is no directory for temporary files.
    """
    removed = []
    for directory, owner in runtime_directories():
        if owner.is_known_dead():
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
    return removed


def runtime_directories() -> Iterator[tuple[Path, OwnerProcess]]:
    """Yield the runtime directories of this user with their owners.

    Raises:
        SandboxStartError: If there is no directory for temporary files.
    """
    for directory in _runtime_base().glob("*"):
        try:
            yield directory, OwnerProcess.parse((directory / _OWNER_FILE).read_text())
        except (OSError, ValueError):
            # Not a runtime directory of coding_gym, or not complete yet.
            continue


def _check_runtime_base(base: Path) -> None:
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = f"Expected {base} to be a private directory of this user (mode 0700); remove it, or set XDG_RUNTIME_DIR"
        raise SandboxStartError(message)
    if len(os.fsencode(base)) > _MAX_BASE_BYTES:
        message = f"The path {base} is too long for Unix sockets in it; set XDG_RUNTIME_DIR to a shorter one"
        raise SandboxStartError(message)


def _runtime_base() -> Path:
    """Return the directory of this user's runtime directories.

    Raises:
        SandboxStartError: If there is none for temporary files.
    """
    parent = os.environ.get("XDG_RUNTIME_DIR")
    if not parent or not os.path.isdir(parent):
        # Slurm passes on the variable of the login node, whose directory does not exist on the nodes of the job.
        try:
            parent = tempfile.gettempdir()
        except FileNotFoundError as error:
            # Of a container that is read-only, for example.
            message = (
                "No sandbox can be started without a directory for temporary files, and none can be written: mount one at /tmp "
                "(docker run --tmpfs /tmp, or an emptyDir of the pod), or set XDG_RUNTIME_DIR to one that can"
            )
            raise SandboxStartError(message) from error
    return Path(parent) / f"coding-gym-{os.getuid()}"


def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_time(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[_STARTTIME_FIELD])
