"""Isolation profile of a session, applied in layers.

The session root installs the seccomp filter and the first Landlock layer before it forks: files, and a scope of signals and
abstract sockets. The worker adds a second scope. Both are further layers where the session has namespaces of its own, which
already keep it from naming any other process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import sysconfig
from collections.abc import Collection, Iterator

import msgspec

from coding_gym_server.isolation import capabilities, landlock, seccomp
from coding_gym_server.isolation.probe import SIGNAL_SCOPE_ABI
from coding_gym_server.isolation.session_user import SessionUsers

__all__ = ["FONT_CACHE", "IsolationProfile", "python_directories"]

FONT_CACHE = "/var/cache/fontconfig"
"""Fontconfig's cache. Without it, every process that draws text scans all fonts, which takes half a second."""

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", FONT_CACHE)
"""What displays may read."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_TERMINALS = ("/dev/ptmx", "/dev/pts")
_FIXED_LIMITS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_MSGQUEUE, 0),
    # Queued signals are counted per user: the server's own limit exceeds what sessions can use.
    (resource.RLIMIT_SIGPENDING, 4096),
)
_OPEN_FILES = 4096
_DISPLAY_MEMORY_BYTES = 768 << 20
_DISPLAY_FILE_BYTES = 128 << 20
_TEST_RUNNER_MEMORY_BYTES = 1 << 30
_TEST_RUNNER_FILE_BYTES = 64 << 20


class IsolationProfile(msgspec.Struct, kw_only=True, frozen=True):
    """Isolation profile of all sessions of a sandbox.

    Attributes:
        landlock: Whether the Landlock layers are applied.
        seccomp: Whether the seccomp filter is applied.
        internet: Whether Internet sockets are permitted: those of a session's own network, or of the sandbox's if it may.
        adopted_by_init: Whether all orphans adopted by init belong to the session, which holds in a container without
            namespaces.
        hidden: Directories that are not of the image: those of the server, and those with secrets.
        of_session: Directories of the only session of a container, which submissions and tests may not read.
        shown: Files and directories below them that sessions may read.
        max_memory_bytes: Limit on a process's private writable memory (``RLIMIT_DATA``), None if the container limits it.
        max_file_bytes: Limit on the size of a file (``RLIMIT_FSIZE``), None for no limit.
        max_tasks: Limit on all tasks of the user (``RLIMIT_NPROC``, which the kernel does not apply to uid 0), None for no
            limit.
        is_root: Whether the session's programs are root of its user namespace, and may change all files.
        users: Users and disks of the sessions; None if the only session has the server's user, and the container's files.
    """

    landlock: bool = True
    seccomp: bool = True
    internet: bool = True
    adopted_by_init: bool = False
    hidden: tuple[str, ...] = ()
    of_session: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    max_memory_bytes: int | None = None
    max_file_bytes: int | None = None
    max_tasks: int | None = None
    is_root: bool = False
    users: SessionUsers | None = None

    @property
    def scopes_signals(self) -> bool:
        """Whether the first layer restricts signals to the session's processes."""
        return self.landlock and landlock.abi_version() >= SIGNAL_SCOPE_ABI

    @property
    def gates_signals(self) -> bool:
        """Whether nothing else keeps a session from signaling the server, whose user it has."""
        return self.users is None and self.seccomp and not self.scopes_signals

    def of_submissions(self) -> IsolationProfile:
        """Return the profile of submissions and tests, which run beside sessions."""
        return msgspec.structs.replace(self, adopted_by_init=False, hidden=(*self.hidden, *self.of_session))

    def apply_to_root(self, *directories: str, changes: int | None = None) -> int | None:
        """Confine the calling process, a session root, and its future children.

        Args:
            *directories: The session's writable directories.
            changes: Descriptor of a directory that the root measures, outside of what the session sees; None if there is none.

        Returns:
            The listener for a ``Gate``, None if there is none.
        """
        listener = self._begin(gate=self.users is not None)
        for kind, limit in self._resource_limits():
            _lower_limit(kind, limit)
        for kind, limit in _FIXED_LIMITS:
            # gVisor has these limits but does not allow to change them.
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.landlock:
            # With mounts of its own, a session sees nothing that it may not read. The rules must apply to those of its forks,
            # too, which do not exist yet.
            rules = landlock.Rules(
                read=(*self._files_of_image(), *([] if changes is None else [f"/proc/self/fd/{changes}"])),
                write=("/",)
                if self.is_root
                else (*directories, "/dev")
                if self.users is not None
                else (*directories, *_DEVICES, *_TERMINALS),
            )
            landlock.restrict_self(rules)
        return listener

    def apply_to_display(self, directory: str) -> None:
        """Confine the calling process, a display process, and its future children.

        Args:
            directory: Directory of the frame buffer, inaccessible to sessions.
        """
        self._begin()
        for kind, limit in (
            *_FIXED_LIMITS,
            (resource.RLIMIT_DATA, _DISPLAY_MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, _DISPLAY_FILE_BYTES),
        ):
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.landlock:
            # Xvfb compiles its keymap into a file in one of these; the location is fixed.
            rules = landlock.Rules(
                read=(*_SYSTEM, *python_directories()), write=(directory, *_DEVICES), drop_boxes=("/tmp", "/var/lib/xkb")
            )
            landlock.restrict_self(rules)

    def apply_to_test_runners(self, *directories: str) -> None:
        """Confine the calling process, a root of test runners, and its future children.

        Args:
            *directories: Directories of the submissions that they test.
        """
        self._begin()
        for kind, limit in (
            *_FIXED_LIMITS,
            (resource.RLIMIT_NOFILE, _most_open_files()),
            (resource.RLIMIT_DATA, _TEST_RUNNER_MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, _TEST_RUNNER_FILE_BYTES),
        ):
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.users is not None and self.users.max_tasks is not None:
            # The kernel counts tasks per user and user namespace, of which the root has one of its own.
            _lower_limit(resource.RLIMIT_NPROC, self.users.max_tasks)
        if self.landlock:
            landlock.restrict_self(landlock.Rules(read=self._files_of_image(), write=(*directories, *_DEVICES)))

    def prepare_workers(self) -> int | None:
        """Return the ruleset for ``apply_to_worker``, created once before the fork; None without Landlock."""
        return landlock.make_ruleset(landlock.Rules(files=False)) if self.landlock else None

    def apply_to_worker(self, prepared: int | None) -> None:
        """Move the calling process, a worker, and its future children into a separate signal scope.

        Args:
            prepared: Ruleset from ``prepare_workers``.
        """
        if prepared is not None:
            landlock.enter(prepared)

    def apply_to_copy(self) -> None:
        """Move the calling process, a copy of another session's worker, and its future children into its own signal scope.

        Raises:
            OSError: If it has too many Landlock layers already.
        """
        if self.landlock:
            landlock.restrict_self(landlock.Rules(files=False))

    def _begin(self, *, gate: bool = False) -> int | None:
        """Drop capabilities, and install the seccomp filter in the calling, single-threaded process."""
        if self.is_root:
            capabilities.keep_for_administration()
        else:
            capabilities.drop_all()
        if self.seccomp and gate:
            # In a network that others share, their netlink sockets would count, too.
            netlink = self.users is not None and not self.users.network
            return seccomp.install_with_gate(netlink=netlink, is_root=self.is_root)
        if self.seccomp:
            seccomp.install(internet=self.internet)
        return None

    def _files_of_image(self) -> tuple[str, ...]:
        """Return the files and directories that sessions, submissions and tests may read: all that are not hidden by mounts."""
        if self.users is not None:
            return ("/",)
        return (*_entries("/", without=self.hidden), *python_directories(), *self.shown)

    def _resource_limits(self) -> list[tuple[int, int]]:
        limits = [
            (resource.RLIMIT_NOFILE, _most_open_files()),
            (resource.RLIMIT_DATA, self.max_memory_bytes),
            (resource.RLIMIT_FSIZE, self.max_file_bytes),
            (resource.RLIMIT_NPROC, self.max_tasks),
        ]
        return [(kind, limit) for kind, limit in limits if limit is not None]


def python_directories() -> set[str]:
    """Return the directories of the interpreter and of importable modules."""
    return {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *filter(os.path.isabs, sys.path)}


def _entries(directory: str, *, without: Collection[str]) -> Iterator[str]:
    """Yield what is in a directory, and in those above hidden directories, in place of these; links are left out."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink() or entry.path in without:
                continue
            if any(path.startswith(f"{entry.path}/") for path in without):
                yield from _entries(entry.path, without=without)
            else:
                yield entry.path


def _most_open_files() -> int:
    """Return the limit on descriptors, which also limits those in flight through sockets, and these are counted per user."""
    return min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def _lower_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
