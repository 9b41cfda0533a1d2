"""What a session is confined to, applied in layers.

The zygote puts itself, and so all that it will fork, under the seccomp filter. The session root adds the first layer of
Landlock before it forks anything: files, TCP, and a scope for signals that makes its ``kill(-1)`` reach exactly the session's
processes. The worker adds a second scope, so that it can signal neither the root nor anything else above itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import sys
import sysconfig

import msgspec

from coding_gym_server.isolation import capabilities, landlock, seccomp
from coding_gym_server.isolation.probe import SIGNAL_SCOPE_ABI

__all__ = ["FONT_CACHE", "Confinement", "python_directories"]

FONT_CACHE = "/var/cache/fontconfig"
"""Without it, every process that draws text looks through all fonts, for half a second."""

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", FONT_CACHE)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_CONFIGURATION = "/etc"
_TERMINALS = ("/dev/ptmx", "/dev/pts")
_PRECAUTIONS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_MSGQUEUE, 0),
    # All processes of a user share one count of queued signals: the server's own limit is higher than what sessions can use up.
    (resource.RLIMIT_SIGPENDING, 4096),
)
_OPEN_FILES = 4096
_DISPLAY_BYTES = 768 << 20
_SCREEN_BYTES = 128 << 20
_EXAMINER_BYTES = 1 << 30
_EXAMINER_FILE_BYTES = 64 << 20


class Confinement(msgspec.Struct, kw_only=True, frozen=True):
    """The limits of every session of a sandbox.

    Attributes:
        landlock: Whether the Landlock layers are applied.
        seccomp: Whether the filter is applied.
        network: Whether the internet's sockets stay allowed.
        shared: Whether other sessions run under the same user id: then none may have what one session could open of another's
            by a name that it can guess or learn, terminals and watches on directories.
        adopted_by_init: Whether all orphans that init has adopted are the session's: in a container, of the only session.
        file_modes: Whether a session may change modes and times of files: not where those of the user are within reach.
        private_directories: Directories beyond its workspace that belong to the session, for it is the only one.
        readable: Files and directories to read beyond the system's and Python's own.
        max_memory_bytes: Limit on a process's private writable memory (``RLIMIT_DATA``); None where the container limits it.
        max_file_bytes: Limit on the size of a file (``RLIMIT_FSIZE``).
        max_tasks: Limit on all tasks of the user (``RLIMIT_NPROC``; the kernel does not apply it to uid 0).
        ports: TCP ports that belong to the session, for programs that speak TCP and nothing else.
    """

    landlock: bool = True
    seccomp: bool = True
    network: bool = False
    shared: bool = True
    adopted_by_init: bool = False
    file_modes: bool = True
    private_directories: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    max_memory_bytes: int | None = None
    max_file_bytes: int | None = None
    max_tasks: int | None = None
    ports: tuple[int, ...] = ()

    @property
    def scopes_signals(self) -> bool:
        """Whether the first layer keeps the session's signals to itself."""
        return self.landlock and landlock.abi_version() >= SIGNAL_SCOPE_ABI

    @property
    def can_have_ports(self) -> bool:
        """Whether a session can have TCP ports that other sessions cannot connect to."""
        return self.network or (self.landlock and landlock.covers_tcp())

    def apply_to_server(self, directories: list[str]) -> None:
        """Confine the calling process, a server outside of any container, and all that it will start.

        Args:
            directories: Where the server makes its socket and the workspaces.
        """
        capabilities.drop_all()
        if self.landlock:
            rules = landlock.Rules(
                read=(*(path for path in _SYSTEM if path != _CONFIGURATION), *_public(_CONFIGURATION), *python_directories()),
                write=(*directories, *_DEVICES, *_TERMINALS, "/dev/shm", "/proc/self"),
                # The sessions' own layers forbid it again, but for the ports of those that have some.
                tcp=True,
            )
            landlock.restrict_self(rules)

    def apply_to_zygote(self) -> None:
        """Put the calling process, which has one thread, under the filter, and all that it will fork."""
        if self.seccomp:
            # Each root decides for itself whether TCP stays allowed, for a filter can only ever be narrowed.
            seccomp.install(internet=self.network, inotify=not self.shared, tcp=True)

    def apply_to_root(self, *directories: str) -> None:
        """Confine the calling process, a session root, and all that it will fork, to the session's directories."""
        capabilities.drop_all()
        for kind, limit in self._resource_limits():
            _lower_limit(kind, limit)
        for kind, limit in _PRECAUTIONS:
            # gVisor knows them, but lets nobody change them.
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.landlock:
            rules = landlock.Rules(
                read=(*_SYSTEM, *python_directories(), *self.readable),
                write=(*directories, *_DEVICES, *(() if self.shared else _TERMINALS), *self.private_directories),
                drop_boxes=("/dev/shm",),
                tcp=self.network,
                bind=self.ports,
                connect=self.ports,
            )
            landlock.restrict_self(rules)
        if self.seccomp and not self.network:
            if self.ports:
                seccomp.forbid_fast_open()
            else:
                seccomp.forbid_internet()

    def apply_to_display(self, directory: str) -> None:
        """Confine the calling process, which serves a display, and all that it will start.

        Args:
            directory: Where the screen is kept, out of the reach of sessions.
        """
        capabilities.drop_all()
        for kind, limit in (*_PRECAUTIONS, (resource.RLIMIT_DATA, _DISPLAY_BYTES), (resource.RLIMIT_FSIZE, _SCREEN_BYTES)):
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.landlock:
            # Xvfb compiles its keymap into a file in one of these, and knows no other place.
            rules = landlock.Rules(
                read=(*_SYSTEM, *python_directories()), write=(directory, *_DEVICES), drop_boxes=("/tmp", "/var/lib/xkb")
            )
            landlock.restrict_self(rules)
        if self.seccomp:
            seccomp.forbid_internet()

    def apply_to_examiner(self, directory: str) -> None:
        """Confine the calling process, which runs tests, and all that it will start.

        Args:
            directory: Where the workspaces of the submissions are that it tests.
        """
        capabilities.drop_all()
        for kind, limit in (
            *_PRECAUTIONS,
            (resource.RLIMIT_DATA, _EXAMINER_BYTES),
            (resource.RLIMIT_FSIZE, _EXAMINER_FILE_BYTES),
        ):
            with contextlib.suppress(OSError, ValueError):
                _lower_limit(kind, limit)
        if self.landlock:
            landlock.restrict_self(landlock.Rules(read=(*_SYSTEM, *python_directories()), write=(directory, *_DEVICES)))
        if self.seccomp:
            seccomp.forbid_internet()

    def prepare_workers(self) -> int | None:
        """Return what ``apply_to_worker`` takes in processes that the calling one will fork: made once, not in each of them."""
        return landlock.make_ruleset(landlock.Rules(files=False, tcp=True)) if self.landlock else None

    def apply_to_worker(self, prepared: int | None) -> None:
        """Put the calling process, a worker, into a signal scope of its own, and all that it will start."""
        if prepared is not None:
            landlock.enter(prepared)
        if self.seccomp and not self.file_modes:
            seccomp.forbid_changing_modes()

    def apply_to_kernel(self) -> None:
        """Let the calling process, a kernel that its worker connects to, listen on the session's ports and connect to none."""
        if self.landlock and not self.network:
            landlock.restrict_self(landlock.Rules(files=False, bind=self.ports))

    def _resource_limits(self) -> list[tuple[int, int]]:
        limits = [
            # All processes of a user share one count of descriptors on their way through sockets, too.
            (resource.RLIMIT_NOFILE, min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)),
            (resource.RLIMIT_DATA, self.max_memory_bytes),
            (resource.RLIMIT_FSIZE, self.max_file_bytes),
            (resource.RLIMIT_NPROC, self.max_tasks),
        ]
        return [(kind, limit) for kind, limit in limits if limit is not None]


def python_directories() -> set[str]:
    """Return where the interpreter and everything importable is."""
    return {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *filter(os.path.isabs, sys.path)}


def _public(directory: str) -> list[str]:
    """Return a directory, or else so much of what is in it as its owner, whom sessions may run as, keeps from nobody."""
    entries = [entry for entry in os.scandir(directory) if not entry.is_symlink()]
    everything = True
    found = []
    for entry in entries:
        is_directory = entry.is_dir()
        wanted = stat.S_IROTH | stat.S_IXOTH if is_directory else stat.S_IROTH
        if entry.stat().st_mode & wanted != wanted:
            everything = False
            continue
        public = _public(entry.path) if is_directory else [entry.path]
        everything &= public == [entry.path]
        found += public
    return [directory] if everything else found


def _lower_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
