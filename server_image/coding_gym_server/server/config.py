"""Server configuration and command line."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from coding_gym_server.protocol import REWARDS, unknown_rewards
from coding_gym_server.worker.backends.registry import UnknownBackendError, check_backend

__all__ = ["ServerConfig", "parse_arguments"]

_SPARE_GRADERS = 1
"""Number of grading workers beyond the number of cores: tests and submissions wait for each other and for the server."""

_DEFAULT_PRELOAD = "numpy,pandas,matplotlib.pyplot"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Server configuration: addresses, sessions and isolation.

    Attributes:
        uds: Path of the Unix socket to listen on, None for TCP.
        host: TCP address to listen on.
        port: TCP port to listen on.
        token: Bearer token that clients must present, None for open access.
        workspaces: Parent directory of the session workspaces.
        home: Workspace of the code-interpreter API. A directory below ``workspaces`` is used if it is None or not writable.
        max_sessions: Maximum number of concurrent sessions.
        spare_workers: Number of idle workers to keep ready.
        preload: Modules that are imported before workers are forked.
        authorized_imports: Modules that backends with an import allowlist permit in addition to their own.
        packages: Packages to install before serving and to authorize, see ``packages.requirements.resolve``.
        fix_typos: Whether to accept suggestions for suspicious package names, which are errors otherwise.
        overlay: Directory of packages in addition to the interpreter's, see ``packages.overlay``.
        distributions: Installed distributions whose modules are authorized.
        isolation: ``require`` fails at startup if the kernel cannot isolate sessions; ``prefer`` continues without.
        network: Whether user code may use TCP.
        private_tmp: Whether ``/tmp`` belongs to the only session of this sandbox and is emptied after each episode.
        private_shm: Whether ``/dev/shm`` belongs exclusively to this sandbox.
        confine_server: Whether the server confines itself as well, for sandboxes outside a container.
        max_memory_bytes: Limit on a process's private writable memory, None if the container limits it.
        max_file_bytes: Limit on the size of a file, None for no limit.
        max_inodes: Limit on the files and directories of each file system that the sandbox mounts, for a session with a user
            of its own or for a confined server.
        max_processes: Limit on processes and threads in addition to the user's existing ones, None if the container limits
            them.
        session_users: Whether each session gets a user, mounts and a file system of its own, if the container permits it.
        shared_user_reason: The reason why the container does not permit it, if the client knows; otherwise empty.
        session_root: Whether programs of sessions are root, in a container whose files they can change.
        session_disk_bytes: Size of the file system of a session that has its own.
        session_processes: Limit on the processes and threads of a session with a user of its own, None for the default of
            ``process_limiter``.
        opengl: Whether displays offer GLX.
        backend: Default backend.
        step_timeout: Default wall-clock limit of a step in seconds.
        rewards: Names from ``protocol.REWARDS`` whose sum is the default reward of a step.
        first_client_within: Seconds after which the server exits without a first client, None for never.
        idle_timeout: Seconds after which the server exits without clients, None for never.
    """

    uds: str | None = None
    host: str = "0.0.0.0"  # noqa: S104 - reachable only through the ports that the container publishes
    port: int = 8000
    token: str | None = None
    workspaces: Path = Path("/workspaces/sessions")
    home: Path | None = None
    max_sessions: int = 64
    spare_workers: int = 1
    preload: tuple[str, ...] = ()
    authorized_imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    fix_typos: bool = False
    overlay: Path | None = None
    distributions: tuple[str, ...] = ()
    isolation: str = "prefer"
    network: bool = False
    private_tmp: bool = False
    private_shm: bool = False
    confine_server: bool = False
    max_memory_bytes: int | None = None
    max_file_bytes: int | None = None
    max_inodes: int = 100_000
    max_processes: int | None = None
    session_users: bool = False
    shared_user_reason: str = ""
    session_root: bool = False
    session_disk_bytes: int = 512 << 20
    session_processes: int | None = None
    opengl: bool = False
    backend: str = "python"
    step_timeout: float = 30.0
    rewards: tuple[str, ...] = ()
    first_client_within: float | None = None
    idle_timeout: float | None = None

    @property
    def home_directory(self) -> Path:
        """Workspace of the code-interpreter API."""
        if self.home is not None and os.access(self.home, os.W_OK | os.X_OK):
            return self.home
        return self.workspaces / "user"

    @property
    def grading_workers(self) -> int:
        """Maximum number of submissions that are graded at the same time."""
        return (os.cpu_count() or 1) + _SPARE_GRADERS

    @property
    def private_directories(self) -> tuple[str, ...]:
        """Directories other than the workspace that belong to the only session; empty with several sessions."""
        if self.max_sessions > 1:
            return ()
        return tuple(
            directory for directory, private in (("/tmp", self.private_tmp), ("/dev/shm", self.private_shm)) if private
        )


def parse_arguments(arguments: list[str] | None = None) -> ServerConfig:
    """Parse the command line and the environment variables of the server.

    ``ADDITIONAL_IMPORTS`` adds to the packages. The token is read from a file, which is removed, from stdin, or from
    ``CODING_GYM_TOKEN``.

    Args:
        arguments: The command line. Defaults to ``sys.argv[1:]``.
    """
    default = ServerConfig()
    parser = argparse.ArgumentParser(prog="coding-gym-server", description="Serve sessions that run code.")
    parser.add_argument("--uds", metavar="PATH", help="listen on a Unix socket instead of TCP")
    parser.add_argument("--host", default=default.host, help="TCP address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=default.port, help="TCP port to listen on (default: %(default)s)")
    parser.add_argument(
        "--token-file", type=Path, metavar="PATH", help="read the token from a file and remove the file; - for stdin"
    )
    parser.add_argument(
        "--workspaces", type=Path, default=default.workspaces, help="parent directory of the session workspaces"
    )
    parser.add_argument("--home", type=Path, metavar="PATH", help="workspace of the code-interpreter API")
    parser.add_argument(
        "--max-sessions", type=int, default=default.max_sessions, help="maximum number of sessions (default: %(default)s)"
    )
    parser.add_argument(
        "--spare-workers", type=int, default=default.spare_workers, help="idle workers to keep ready (default: %(default)s)"
    )
    parser.add_argument("--preload", default=_DEFAULT_PRELOAD, help="modules to import in advance (default: %(default)s)")
    parser.add_argument(
        "--backend", default=os.environ.pop("EXECUTOR_BACKEND", default.backend), help="default backend (default: %(default)s)"
    )
    parser.add_argument(
        "--authorized-imports", default="", metavar="MODULES", help="modules that import allowlists permit additionally"
    )
    parser.add_argument(
        "--distributions", default="", metavar="NAMES", help="installed distributions whose modules import allowlists permit"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--packages", default="", help="packages to install before serving and to permit: numpy>=2,yaml,math")
    source.add_argument(
        "--overlay", type=Path, metavar="DIRECTORY", help="directory of packages in addition to the interpreter's"
    )
    parser.add_argument("--fix-typos", action="store_true", help="accept suggestions for misspelled package names")
    parser.add_argument(
        "--isolation", choices=["require", "prefer"], default=default.isolation, help="isolation policy (default: %(default)s)"
    )
    parser.add_argument("--network", action="store_true", help="allow user code to use TCP")
    parser.add_argument(
        "--private-tmp", action="store_true", help="/tmp belongs to the only session: empty it after each episode"
    )
    parser.add_argument("--private-shm", action="store_true", help="/dev/shm belongs to this sandbox: clean it up")
    parser.add_argument("--confine-server", action="store_true", help="confine the server as well")
    parser.add_argument("--max-memory-bytes", type=int, help="limit on a process's private memory")
    parser.add_argument("--max-file-bytes", type=int, help="limit on the size of a file")
    parser.add_argument(
        "--max-inodes",
        type=int,
        default=default.max_inodes,
        help="limit on the files and directories of a file system that the sandbox mounts (default: %(default)s)",
    )
    parser.add_argument("--max-processes", type=int, help="limit on the user's processes")
    parser.add_argument(
        "--session-users",
        action="store_true",
        help="give each session a user, mounts and a file system of its own, if the container permits it",
    )
    parser.add_argument("--shared-user-reason", default="", metavar="REASON", help="why the container does not permit it")
    parser.add_argument("--session-root", action="store_true", help="let programs of sessions be root, of a copy of the files")
    parser.add_argument(
        "--session-disk-bytes",
        type=int,
        default=default.session_disk_bytes,
        help="size of the file system of a session that has its own (default: %(default)s)",
    )
    parser.add_argument(
        "--session-processes",
        type=int,
        help="limit on the processes of a session that has a user (default: three quarters of the container's limit, or all "
        "with a single session)",
    )
    parser.add_argument(
        "--opengl",
        action="store_true",
        default=bool(os.environ.get("CODING_GYM_OPENGL")),
        help="offer OpenGL to programs (default: whether CODING_GYM_OPENGL is set)",
    )
    parser.add_argument(
        "--step-timeout",
        type=float,
        default=default.step_timeout,
        help="wall-clock limit of a step in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--rewards",
        type=_rewards,
        metavar="NAMES",
        default=os.environ.get("REWARDS", ""),
        help=f"rewards to add up: {', '.join(REWARDS)} (default: $REWARDS, or none)",
    )
    parser.add_argument("--first-client-within", type=float, metavar="SECONDS", help="exit if no client connects in this time")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="exit after this time without clients")
    options = vars(parser.parse_args(arguments))
    options["token"] = _take_token(options.pop("token_file"))
    try:
        check_backend(options["backend"])
    except UnknownBackendError as error:
        parser.error(str(error))
    for name in ("preload", "authorized_imports", "distributions"):
        options[name] = _names(options[name])
    # With an overlay, all packages are installed already.
    packages = "" if options["overlay"] else f"{options['packages']},{os.environ.pop('ADDITIONAL_IMPORTS', '')}"
    options["packages"] = _packages(packages.strip(","))
    return ServerConfig(**options)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _packages(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    # Imported here because most servers have no packages, and the import delays the start.
    from coding_gym_server.packages.requirements import split_list

    return tuple(split_list(text))


def _rewards(text: str) -> tuple[str, ...]:
    names = _names(text)
    if reason := unknown_rewards(names):
        raise argparse.ArgumentTypeError(reason)
    return names


def _take_token(path: Path | None) -> str | None:
    from_environment = os.environ.pop("CODING_GYM_TOKEN", None)
    if path is None:
        return from_environment or None
    if str(path) == "-":
        return sys.stdin.readline().strip() or None
    token = path.read_text().strip()
    path.unlink()
    return token
