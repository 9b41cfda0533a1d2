"""Run the server: ``python -m coding_gym_server``."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from coding_gym_server.config import ServerConfig, parse_arguments
from coding_gym_server.display.installed import can_have_screens
from coding_gym_server.isolation import namespaces
from coding_gym_server.isolation.confinement import FONT_CACHE, Confinement, python_directories
from coding_gym_server.isolation.probe import IsolationReport, probe, report
from coding_gym_server.protocol import MAX_FRAME_BYTES
from coding_gym_server.workers import font_cache
from coding_gym_server.workers.process_table import tasks_of_user
from coding_gym_server.workers.zygote import ZygoteConfig
from coding_gym_server.workers.zygote_process import ZygoteProcess

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)

_PR_SET_DUMPABLE = 4
_SHUTDOWN_SECONDS = 1


def main() -> None:
    """Parse the command line and serve until told to end."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    config = parse_arguments()
    kernel = probe()
    if config.isolation == "require" and kernel.missing:
        sys.exit(
            f"isolation=require wants {'; and '.join(kernel.missing)}. "
            "Use the docker provider with one session a container, or a kernel that has it (lsm=landlock on its command line)."
        )
    config.workspaces.mkdir(parents=True, exist_ok=True)
    config = _with_packages(config)
    directories = [str(config.workspaces), *([os.path.dirname(config.uds)] if config.uds else [])]
    fonts = font_cache.prepare(config.workspaces)
    has_namespaces = config.confine_server and _enter_namespaces(directories, network=config.network)
    if has_namespaces:
        config = replace(config, private_shm=True)
    # Nobody may list it, so that the random names below it stay secret.
    with contextlib.suppress(PermissionError):
        config.workspaces.chmod(0o1733 if config.confine_server else 0o311)
    if config.confine_server:
        namespaces.disown(str(config.workspaces))
    config.home_directory.mkdir(mode=0o700, exist_ok=True)
    _allow_more_open_files()
    confinement = Confinement(
        landlock=kernel.landlock_abi > 0,
        seccomp=kernel.seccomp,
        network=config.network,
        shared=config.max_sessions > 1,
        adopted_by_init=config.private_shm and config.max_sessions == 1 and not config.confine_server,
        file_modes=has_namespaces or not config.confine_server,
        private_directories=config.private_directories,
        readable=(str(fonts),),
        max_memory_bytes=config.max_memory_bytes,
        max_file_bytes=config.max_file_bytes,
        max_tasks=None if config.max_processes is None else tasks_of_user(os.getuid()) + config.max_processes,
    )
    if config.confine_server:
        # An empty one of its own, where the sockets of screens are.
        confinement.apply_to_server([*directories, *(["/tmp"] if has_namespaces else [])])
    # The zygote imports for most of a second: let it begin before the server loads its own modules.
    wanted = ZygoteConfig(
        preload=list(config.preload),
        backend=config.backend,
        confinement=confinement,
        authorized_imports=config.authorized_imports,
        overlay=None if config.overlay is None else str(config.overlay),
        displays=can_have_screens(),
    )
    zygote = ZygoteProcess(wanted, font_cache=fonts)
    # No process of the same user may look into the server's memory or environment.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    isolation = report(kernel, policy=config.isolation, own_namespaces=has_namespaces)
    server = _server(config, zygote, confinement, isolation)
    # What is loaded by now stays; leave it out of every collection to come.
    gc.collect()
    gc.freeze()
    server.run()


def _with_packages(config: ServerConfig) -> ServerConfig:
    """Provide the packages that are asked for; returns the configuration with all modules that they bring."""
    if not (config.packages or config.overlay or config.distributions):
        return config
    # Seldom needed.
    from coding_gym_server.provisioning import provide

    try:
        return provide(config)
    except (ValueError, RuntimeError, OSError) as error:
        sys.exit(f"The packages {', '.join(config.packages)} cannot be had:\n{error}")


def _enter_namespaces(directories: list[str], *, network: bool) -> bool:
    try:
        namespaces.enter(keep=directories, readable=(*python_directories(), FONT_CACHE), network=network)
    except OSError as error:
        _log.warning("no namespaces of its own, so this user's Unix sockets and datagrams are within reach: %s", error)
        return False
    return True


def _allow_more_open_files() -> None:
    """Raise the server's own limit: a part of it is the sessions'."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _server(
    config: ServerConfig, zygote: ZygoteProcess, confinement: Confinement, isolation: IsolationReport
) -> uvicorn.Server:
    import uvicorn

    from coding_gym_server.api.connections import HttpConnection, WebSocketConnection
    from coding_gym_server.app import create_app

    def end() -> None:
        server.should_exit = server.force_exit = True

    server = uvicorn.Server(
        uvicorn.Config(
            create_app(config, zygote, confinement=confinement, isolation=isolation, end=end),
            uds=config.uds,
            host=config.host,
            port=config.port,
            http=HttpConnection,
            ws=WebSocketConnection,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
            # A client that waits for a slow policy reads nothing for minutes; that is no reason to drop it.
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
