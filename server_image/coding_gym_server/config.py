"""What a server is started with."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from coding_gym_server.backends import UnknownBackendError, check_backend
from coding_gym_server.packages import split_list
from coding_gym_server.protocol import REWARDS, unknown_rewards

__all__ = ["ServerConfig", "parse_arguments"]

_DEFAULT_PRELOAD = "numpy,pandas,matplotlib.pyplot"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server listens, how many sessions it has and how they are confined.

    Attributes:
        uds: Path of the Unix socket to listen on; None for TCP.
        host: TCP address to listen on.
        port: TCP port to listen on.
        token: What clients must present, None for open access.
        workspaces: The directory below which sessions have theirs.
        home: The workspace of the code-interpreter API; below ``workspaces`` if there is no such directory to write to.
        max_sessions: The most sessions at a time.
        spare_workers: Workers kept ready beyond those in use.
        preload: Modules that every worker has imported already.
        authorized_imports: Modules that may be imported where a backend has a list of those, beyond its own.
        packages: What to install before serving, as ``packages.resolve`` takes it, and to authorise.
        overlay: A directory of packages beyond the interpreter's own, see ``overlay``.
        distributions: Distributions that are installed, whose modules are authorised.
        isolation: ``require`` refuses to start where the kernel cannot keep sessions apart; ``prefer`` goes on without.
        network: Whether user code may use TCP.
        private_tmp: Whether ``/tmp`` belongs to the one session of this sandbox, to be emptied after each episode.
        private_shm: Whether ``/dev/shm`` belongs to this sandbox alone.
        confine_server: Whether the server confines itself, too: for sandboxes that are not in a container.
        max_memory_bytes: Limit on a process's private writable memory, None where the container limits it.
        max_file_bytes: Limit on the size of a file, None for no limit.
        max_processes: Limit on processes and threads beyond those that the user has already, None where the container limits
            them.
        opengl: Whether screens offer GLX.
        backend: What executes code unless a reset says otherwise.
        step_timeout: Default wall-clock limit of a step in seconds.
        rewards: What the reward of a step is the sum of unless a reset says otherwise, names of ``protocol.REWARDS``.
        first_client_within: Seconds after which the server ends if no client ever came, None for never.
        idle_timeout: Seconds after which the server ends when its last client has gone, None for never.
    """

    uds: str | None = None
    host: str = "0.0.0.0"  # noqa: S104 - in a container, whose published ports decide
    port: int = 8000
    token: str | None = None
    workspaces: Path = Path("/workspaces/sessions")
    home: Path | None = None
    max_sessions: int = 64
    spare_workers: int = 1
    preload: tuple[str, ...] = ()
    authorized_imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    overlay: Path | None = None
    distributions: tuple[str, ...] = ()
    isolation: str = "prefer"
    network: bool = False
    private_tmp: bool = False
    private_shm: bool = False
    confine_server: bool = False
    max_memory_bytes: int | None = None
    max_file_bytes: int | None = None
    max_processes: int | None = None
    opengl: bool = False
    backend: str = "python"
    step_timeout: float = 30.0
    rewards: tuple[str, ...] = ()
    first_client_within: float | None = None
    idle_timeout: float | None = None

    @property
    def home_directory(self) -> Path:
        """The workspace of the code-interpreter API."""
        if self.home is not None and os.access(self.home, os.W_OK | os.X_OK):
            return self.home
        return self.workspaces / "user"

    @property
    def private_directories(self) -> tuple[str, ...]:
        """Directories beyond its workspace that belong to the session, where there is only one."""
        if self.max_sessions > 1:
            return ()
        return tuple(
            directory for directory, private in (("/tmp", self.private_tmp), ("/dev/shm", self.private_shm)) if private
        )


def parse_arguments(arguments: list[str] | None = None) -> ServerConfig:
    """Read the command line, and the environment: ``ADDITIONAL_IMPORTS`` adds to the packages.

    The token comes from a file, which is removed, from stdin, or from ``CODING_GYM_TOKEN``.
    """
    default = ServerConfig()
    parser = argparse.ArgumentParser(prog="coding-gym-server", description="Serve sessions that run code.")
    parser.add_argument("--uds", metavar="PATH", help="listen on a Unix socket instead of TCP")
    parser.add_argument("--host", default=default.host, help="TCP address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=default.port, help="TCP port to listen on (default: %(default)s)")
    parser.add_argument("--token-file", type=Path, metavar="PATH", help="read the token from a file, and remove it; - is stdin")
    parser.add_argument("--workspaces", type=Path, default=default.workspaces, help="where sessions have their directories")
    parser.add_argument("--home", type=Path, metavar="PATH", help="the workspace of the code-interpreter API")
    parser.add_argument("--max-sessions", type=int, default=default.max_sessions, help="(default: %(default)s)")
    parser.add_argument("--spare-workers", type=int, default=default.spare_workers, help="(default: %(default)s)")
    parser.add_argument("--preload", default=_DEFAULT_PRELOAD, help="modules to import beforehand (default: %(default)s)")
    parser.add_argument("--backend", default=os.environ.pop("EXECUTOR_BACKEND", default.backend), help="(default: %(default)s)")
    parser.add_argument(
        "--authorized-imports", default="", metavar="MODULES", help="modules to allow where a backend has a list of those"
    )
    parser.add_argument(
        "--distributions", default="", metavar="NAMES", help="installed distributions whose modules to allow likewise"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--packages", default="", help="what to install before serving, and to allow likewise: numpy>=2,yaml,math"
    )
    source.add_argument("--overlay", type=Path, metavar="DIRECTORY", help="packages beyond the interpreter's own")
    parser.add_argument("--isolation", choices=["require", "prefer"], default=default.isolation, help="(default: %(default)s)")
    parser.add_argument("--network", action="store_true", help="let user code use TCP")
    parser.add_argument("--private-tmp", action="store_true", help="/tmp is the one session's: empty it after each episode")
    parser.add_argument("--private-shm", action="store_true", help="/dev/shm is this sandbox's alone: clean it up")
    parser.add_argument("--confine-server", action="store_true", help="put the server under Landlock, too")
    parser.add_argument("--max-memory-bytes", type=int, help="limit on a process's private memory")
    parser.add_argument("--max-file-bytes", type=int, help="limit on the size of a file")
    parser.add_argument("--max-processes", type=int, help="limit on the user's processes")
    parser.add_argument(
        "--opengl",
        action="store_true",
        default=bool(os.environ.get("CODING_GYM_OPENGL")),
        help="let programs draw with OpenGL (default: whether the variable CODING_GYM_OPENGL is set)",
    )
    parser.add_argument("--step-timeout", type=float, default=default.step_timeout, help="seconds (default: %(default)s)")
    parser.add_argument(
        "--rewards",
        type=_rewards,
        metavar="NAMES",
        default=os.environ.get("REWARDS", ""),
        help=f"what rewards add up to: {', '.join(REWARDS)} (default: what the variable REWARDS says, or none)",
    )
    parser.add_argument("--first-client-within", type=float, metavar="SECONDS", help="end if no client comes")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="end when the last client has gone")
    options = vars(parser.parse_args(arguments))
    options["token"] = _take_token(options.pop("token_file"))
    try:
        check_backend(options["backend"])
    except UnknownBackendError as error:
        parser.error(str(error))
    for name in ("preload", "authorized_imports", "distributions"):
        options[name] = _names(options[name])
    # With an overlay, all is installed already.
    wanted = "" if options["overlay"] else f"{options['packages']},{os.environ.pop('ADDITIONAL_IMPORTS', '')}"
    options["packages"] = tuple(split_list(wanted))
    return ServerConfig(**options)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


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
