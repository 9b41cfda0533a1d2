"""What a session is confined to, applied in two layers.

The session root takes the first layer before it forks anything: files, TCP, and a scope for signals that makes its ``kill(-1)``
reach exactly the session's processes. The worker adds a second scope, so that it can signal neither the root nor anything else
above itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import sysconfig
from pathlib import Path

import msgspec

from coding_gym_server.isolation import capabilities, landlock

__all__ = ["SIGNAL_SCOPE_ABI", "Confinement"]

SIGNAL_SCOPE_ABI = 6
"""The Landlock ABI version (Linux 6.12) that keeps a session from signalling anything outside of it."""

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")


class Confinement(msgspec.Struct, kw_only=True, frozen=True):
    """The limits of every session of a sandbox.

    Attributes:
        landlock: Whether the Landlock layers are applied.
        tcp: Whether TCP stays allowed.
        private_directories: Directories beyond its workspace that belong to the session, for it is the only one.
        readable: Files and directories to read beyond the system's and Python's own.
        max_memory_bytes: Limit on a process's private writable memory (``RLIMIT_DATA``); None where the container limits it.
        max_file_bytes: Limit on the size of a file (``RLIMIT_FSIZE``).
        max_tasks: Limit on all tasks of the user (``RLIMIT_NPROC``; the kernel does not apply it to uid 0).
    """

    landlock: bool = True
    tcp: bool = False
    private_directories: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    max_memory_bytes: int | None = None
    max_file_bytes: int | None = None
    max_tasks: int | None = None

    @property
    def scopes_signals(self) -> bool:
        """Whether the first layer keeps the session's signals to itself."""
        return self.landlock and landlock.abi_version() >= SIGNAL_SCOPE_ABI

    def apply_to_server(self, directories: list[str]) -> None:
        """Confine the calling process, a server outside of any container, and all that it will start.

        Args:
            directories: Where the server makes its socket and the workspaces.
        """
        capabilities.drop_all()
        if self.landlock:
            rules = landlock.Rules(
                read=(*_SYSTEM, *_python()), write=(*directories, *_DEVICES, "/dev/shm", "/proc/self"), tcp=self.tcp
            )
            landlock.restrict_self(rules)

    def apply_to_root(self, workspace: str) -> None:
        """Confine the calling process, a session root, and all that it will fork, to ``workspace``."""
        capabilities.drop_all()
        # The session's processes are the first to go when memory runs out; afterwards /proc is read-only.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        for kind, limit in self._resource_limits():
            _lower_limit(kind, limit)
        if self.landlock:
            rules = landlock.Rules(
                read=(*_SYSTEM, *_python(), *self.readable),
                write=(workspace, *_DEVICES, *self.private_directories),
                drop_boxes=("/dev/shm",),
                tcp=self.tcp,
            )
            landlock.restrict_self(rules)

    def apply_to_worker(self) -> None:
        """Put the calling process, a worker, into a signal scope of its own."""
        if self.landlock:
            landlock.restrict_self(landlock.Rules(files=False, tcp=True))

    def _resource_limits(self) -> list[tuple[int, int]]:
        limits = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_DATA, self.max_memory_bytes),
            (resource.RLIMIT_FSIZE, self.max_file_bytes),
            (resource.RLIMIT_NPROC, self.max_tasks),
        ]
        return [(kind, limit) for kind, limit in limits if limit is not None]


def _python() -> set[str]:
    """Return where the interpreter and everything importable is."""
    return {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *filter(os.path.isabs, sys.path)}


def _lower_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
