"""Run the server: ``python -m coding_gym_server``."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coding_gym_server.isolation import capabilities, namespaces, seccomp, session_user
from coding_gym_server.isolation.probe import IsolationReport, probe, report
from coding_gym_server.isolation.profile import FONT_CACHE, IsolationProfile, python_directories
from coding_gym_server.isolation.session_user import RESERVED_USERS, SessionUsers
from coding_gym_server.launcher.client import LauncherClient
from coding_gym_server.launcher.main import become_server, launch
from coding_gym_server.linux import control_groups, fontconfig, mounts, user_namespaces
from coding_gym_server.linux.forking import ask_child
from coding_gym_server.linux.network import has_only_loopback
from coding_gym_server.linux.procfs import tasks_of_user
from coding_gym_server.protocol import MAX_FRAME_BYTES, ServerConfig
from coding_gym_server.protocol.backends import UnknownBackendError
from coding_gym_server.server.command_line import parse_arguments
from coding_gym_server.server.process_limiter import default_session_limit
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.worker.backends.registry import check_installed
from coding_gym_server.workspace.image_programs import ImagePrograms, programs_of
from coding_gym_server.workspace.layout import MOUNTED, PRIVATE, directories_of_image
from coding_gym_server.zygote.config import ZygoteConfig

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)

_PR_SET_DUMPABLE = 4
_WORKSPACES = "/run/workspaces"
"""Path of the workspaces in the namespaces of a server outside a container."""

_TEMPORARY = "tmp"
"""Directory of the workspaces for temporary files of the server where sessions have a root."""

_SECRETS = "/run"
"""Directory in which engines and clusters mount secrets of a container."""

_FALLBACK_SESSION_USER = 20001
_USER_RANGES, _FIRST_USER_RANGE, _USERS_PER_RANGE = 1 << 15, 1 << 5, 1 << 16
_MIN_SESSION_USERS, _MAX_SESSION_USERS = 256, 1 << 14
_USERS_PER_SESSION = 4
"""Users of ended sessions, and of grading workers, are not taken again at once."""

_SHUTDOWN_SECONDS = 1


def main() -> None:
    """Parse the command line and serve until a signal or the idle shutdown ends the server."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    config = parse_arguments()
    kernel = probe()
    if config.isolation == "require" and kernel.missing_filter:
        sys.exit(f"isolation=require is not available: it requires {kernel.missing_filter}")
    # Inherited by the sessions.
    os.umask(0o022)
    _allow_more_open_files()
    # Before the server leaves the network in which its clients are.
    listener = None if config.uds else _listen(config)
    image = _programs_of_image(config)
    form = _choose_form(config) if config.container else None
    config.workspaces.mkdir(parents=True, exist_ok=True)
    if config.session_root:
        # At the usual place, there are files of the image, which a session gets.
        temporary = config.workspaces / _TEMPORARY
        temporary.mkdir()
        temporary.chmod(0o1777)
        os.environ["TMPDIR"] = str(temporary)
    config = _with_packages(config)
    _require_backend(config.default_backend)
    fonts = fontconfig.prepare(config.workspaces)
    # Not listable, so that the random names below it stay secret.
    with contextlib.suppress(PermissionError):
        config.workspaces.chmod(0o311 if config.container else 0o1733)
    if form is None:
        _enter_namespaces(config)
        namespaces.disown(_WORKSPACES)
        config = msgspec.structs.replace(config, workspaces=Path(_WORKSPACES))
        fonts = config.workspaces / fonts.name
        form = _choose_form(config, reachable=_hidden(config))
        if form.users is None:
            sys.exit(f"a local sandbox requires namespaces for its sessions: {form.user_reason}; {form.files_reason}")
    if form.users is None:
        if config.isolation == "require" and kernel.missing_scope:
            sys.exit(
                f"isolation=require is not available: it requires {kernel.missing_scope}. "
                f"Sessions have no namespaces: {form.files_reason}"
            )
        _log.warning("one session at a time, without namespaces: %s; %s", form.user_reason, form.files_reason)
        # A spare would have the files of the session.
        config = msgspec.structs.replace(config, spare_workers=0)
        if unusable := [path for path, _ in MOUNTED.values() if not os.access(path, os.W_OK)]:
            sys.exit(f"user {os.geteuid()} cannot write {', '.join(unusable)}: mount a file system there that it can write")
    if config.uds and not os.access(os.path.dirname(config.uds) or ".", os.W_OK | os.X_OK):
        sys.exit(f"user {os.geteuid()} cannot create {config.uds}: let it write the directory, or listen on TCP")
    users = form.users
    hidden = _hidden(config)
    if users is not None:
        users = msgspec.structs.replace(users, hidden=hidden, shown=(str(fonts),))
    profile = IsolationProfile(
        landlock=kernel.landlock_abi > 0,
        seccomp=kernel.seccomp,
        internet=users is not None or config.network or has_only_loopback(),
        adopted_by_init=users is None,
        hidden=hidden,
        of_session=tuple(path for path, _ in MOUNTED.values()) if users is None else (),
        shown=(str(fonts),),
        max_memory_bytes=config.max_memory_bytes,
        max_file_bytes=config.max_file_bytes,
        max_tasks=None if config.max_processes is None else tasks_of_user(os.getuid()) + config.max_processes,
        users=users,
    )
    if not config.container:
        capabilities.drop_all()
    if kernel.seccomp and (form.users is None or form.launcher is not None):
        # The launcher and the session roots need more system calls; the server needs no more than a session. Without a
        # launcher, the zygote inherits the filter, which would deny mounts to the session roots.
        capabilities.drop_all()
        seccomp.install(page_cache=True)
    # One user namespace for all zygotes, so that the roots of a new one can enter what those of its predecessor have left. Only
    # a process that is dumpable can create it.
    needs_namespace = form.users is not None and form.launcher is None
    zygote_config = ZygoteConfig(
        preload=list(config.preload),
        backend=config.default_backend,
        profile=profile,
        authorized_imports=config.authorized_imports,
        overlay=None if config.overlay is None else str(config.overlay),
        namespace=_create_namespace() if needs_namespace else None,
        image=image,
    )
    # The zygote imports for most of a second: start it before the server imports its own modules.
    zygote = ZygoteHandle(zygote_config, font_cache=fonts, launcher=form.launcher)
    # Processes of the same user must not read the server's memory or environment.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    isolation = report(
        kernel,
        policy=config.isolation,
        own_namespaces=not config.container,
        session_users=form.launcher is not None,
        session_mounts=form.users is not None,
        shared_user_reason=form.user_reason,
        shared_files_reason=form.files_reason,
        shared_group_reason=form.group_reason,
    )
    # The server's imports leave hardly any garbage, and permanent objects.
    gc.disable()
    server = _server(config, zygote, form.launcher, profile, isolation, image)
    gc.collect()
    gc.freeze()
    gc.enable()
    server.run(None if listener is None else [listener])


class _Form(NamedTuple):
    """Form of a sandbox's sessions: users, one user, or a container with a single session.

    Attributes:
        users: Users and disks of the sessions; None if the only session has the server's user, and the container's files.
        launcher: The connection to the launcher, None if all sessions run as the server's user.
        user_reason: The reason why sessions have no users, empty if they have.
        files_reason: The reason why sessions have no namespaces, empty if they have.
        group_reason: The reason why sessions have no control groups, empty if they have.
    """

    users: SessionUsers | None
    launcher: LauncherClient | None
    user_reason: str = ""
    files_reason: str = ""
    group_reason: str = "they have no users"


def _choose_form(config: ServerConfig, *, reachable: Sequence[str] = ()) -> _Form:
    """Give sessions users, namespaces and file systems of their own as far as that is configured and possible.

    Args:
        config: The server's configuration.
        reachable: Directories that the server requires.
    """
    if config.session_root and not config.container:
        sys.exit("--session-root requires a container")
    readable = [path for path in (sys.executable, *python_directories()) if os.access(path, os.R_OK)]
    first = _first_session_user()
    graders = min(_USERS_PER_SESSION * config.grading_workers, _MAX_SESSION_USERS // 4)
    of_sessions = max(_MIN_SESSION_USERS, _USERS_PER_SESSION * config.max_sessions)
    users = SessionUsers(
        # The kernel counts resources such as watches of epoll(7) per user of the machine; that of an image may be a person.
        server=first + _MAX_SESSION_USERS,
        first=first,
        count=min(of_sessions + 2 * graders, _MAX_SESSION_USERS - RESERVED_USERS),
        graders=graders,
        # Another image's programs find its own directories, and may write them.
        directories=directories_of_image() if config.image is None else MOUNTED,
        disk_bytes=config.session_disk_bytes,
        inodes=config.max_inodes,
        max_tasks=config.session_processes or default_session_limit(config.max_sessions, config.max_processes),
        systems=config.max_sessions + 2 * config.grading_workers,
        have_root=config.session_root,
        hidden=_hidden(config) if config.container else (),
        read_only=config.mounts,
        layers="" if config.layers is None else str(config.layers),
        network=config.network,
    )
    launcher, reason = None, config.shared_user_reason
    if not reason:
        group_reason = "a local sandbox has no control group"
        if config.container and os.geteuid() == 0:
            group_reason = control_groups.share_out(users.of_zygotes)
        users = msgspec.structs.replace(users, have_groups=not group_reason)
        launcher, reason = launch(users, readable=readable, reachable=reachable)
        if launcher is not None:
            return _Form(users, launcher, group_reason=group_reason)
    if config.session_root:
        sys.exit(f"root=True is not available: sessions cannot have their own root, because {reason}")
    if os.geteuid() == 0:
        # A container that permits no namespaces has no names for other users.
        _become_unprivileged(msgspec.structs.replace(users, server=session_user.USER) if config.container else users)
    own = os.geteuid()
    users = msgspec.structs.replace(users, server=own, count=0, have_groups=False)

    def try_to_enter() -> str:
        # Without capabilities, as the zygote.
        capabilities.drop_all()
        mounts.join(_create_namespace(), mounts.NEW_USERS)
        return session_user.try_to_enter(users, readable)

    if obstacle := ask_child(try_to_enter):
        return _Form(None, None, reason, obstacle)
    _log.warning("sessions share a user: %s", reason)
    return _Form(users, None, reason)


def _hidden(config: ServerConfig) -> tuple[str, ...]:
    """Return the directories of the server, and those with secrets."""
    sockets = [os.path.dirname(config.uds)] if config.uds else []
    # In some images, a directory above is a link.
    layers = [str(config.layers)] if config.layers is not None else []
    secrets = [_SECRETS] if config.container else []
    return tuple(map(os.path.realpath, (*secrets, str(config.workspaces), *layers, *sockets)))


def _listen(config: ServerConfig) -> socket.socket:
    """Return a listening socket at the configured address."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        sys.exit(f"cannot listen on {config.host}:{config.port}: {error.strerror}")


def _programs_of_image(config: ServerConfig) -> ImagePrograms | None:
    """Return how programs of sessions run if they are those of another image than the server's, else None."""
    if config.image is None:
        return None
    settings = config.image
    try:
        return programs_of(settings.environment, settings.user, settings.directory, host_name=namespaces.HOST_NAME)
    except ValueError as error:
        sys.exit(f"the image sets a user that it does not have: {error}")


def _create_namespace() -> int:
    """Return a descriptor of a new user namespace with the calling process's own user."""
    own = os.geteuid()
    return user_namespaces.create([(own, own, 1)], [(own, os.getegid(), 1)])


def _become_unprivileged(users: SessionUsers) -> None:
    try:
        become_server(users)
    except PermissionError:
        sys.exit(
            f"The server may neither remain root nor become user {users.server}: "
            f"start the container with the capabilities SETUID and SETGID, or as user {users.server}"
        )


def _first_session_user() -> int:
    """Return an id that begins a range of users which other sandboxes of this machine are unlikely to have.

    The kernel counts resources such as pending signals per user of the machine.
    """
    mapped = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    if any(int(start) + int(count) >= _USER_RANGES * _USERS_PER_RANGE for start, _, count in mapped):
        return (_FIRST_USER_RANGE + secrets.randbelow(_USER_RANGES - _FIRST_USER_RANGE)) * _USERS_PER_RANGE
    # The container itself is in a user namespace.
    return _FALLBACK_SESSION_USER


def _with_packages(config: ServerConfig) -> ServerConfig:
    """Install the configured packages; return the configuration with their modules."""
    if not (config.packages or config.overlay or config.distributions):
        return config
    # Imported here because most servers have no packages to provide.
    from coding_gym_server.server.provisioning import provide

    try:
        return provide(config)
    except (ValueError, RuntimeError, OSError) as error:
        sys.exit(f"Installing the packages {', '.join(config.packages)} failed:\n{error}")


def _require_backend(name: str) -> None:
    """Exit with ``os.EX_CONFIG``, by which clients recognize a configuration error, if the backend is not installed."""
    try:
        check_installed(name)
    except UnknownBackendError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(os.EX_CONFIG)


def _enter_namespaces(config: ServerConfig) -> None:
    """Move the calling process, a server outside a container, into namespaces with the paths of a container's."""
    keep = {str(config.workspaces): _WORKSPACES}
    if config.uds:
        directory = os.path.dirname(config.uds)
        keep[directory] = directory
    programs = () if config.overlay is None else (str(config.overlay / "bin"),)

    def enter() -> str:
        namespaces.enter(
            keep=keep,
            readable=(*python_directories(), *programs, FONT_CACHE),
            covered=[mount_point for mount_point, _ in MOUNTED.values()],
            network=config.network,
            user=session_user.USER,
            home=PRIVATE.home,
            max_inodes=config.max_inodes,
        )
        return ""

    if obstacle := ask_child(enter):
        sys.exit(f"a local sandbox requires namespaces, which this machine refuses: {obstacle}")
    enter()


def _allow_more_open_files() -> None:
    """Raise the server's limit on open files, from which those of the sessions are derived."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _server(
    config: ServerConfig,
    zygote: ZygoteHandle,
    launcher: LauncherClient | None,
    profile: IsolationProfile,
    isolation: IsolationReport,
    image: ImagePrograms | None,
) -> uvicorn.Server:
    import uvicorn

    from coding_gym_server.server.api.connections import HttpConnection, WebSocketConnection
    from coding_gym_server.server.api.handed_listeners import SandboxServer
    from coding_gym_server.server.app import create_app

    # With a launcher, the zygote is its child.
    HttpConnection.sessions_root = os.getpid() if launcher is None else os.getppid()

    def end() -> None:
        server.should_exit = server.force_exit = True

    server = SandboxServer(
        uvicorn.Config(
            create_app(config, zygote, launcher=launcher, profile=profile, isolation=isolation, end=end, image=image),
            uds=config.uds,
            host=config.host,
            port=config.port,
            http=HttpConnection,
            ws=WebSocketConnection,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
            # A client with a slow policy may not read for minutes and must not be disconnected.
            ws_ping_interval=None,
            lifespan="on",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
    )
    return server


if __name__ == "__main__":
    main()
