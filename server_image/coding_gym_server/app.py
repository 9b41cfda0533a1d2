"""Assembles the server: zygote, units, sessions, and the ASGI application that offers them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.api import http
from coding_gym_server.api.bodies import BodyTooLargeError
from coding_gym_server.api.codec import BadRequestError
from coding_gym_server.api.files import file_routes
from coding_gym_server.api.guard import TokenGuard
from coding_gym_server.api.interpreter import interpreter_routes
from coding_gym_server.api.websocket import SessionEndpoint
from coding_gym_server.backends import UnknownBackendError
from coding_gym_server.config import ServerConfig
from coding_gym_server.display.installed import can_have_screens
from coding_gym_server.display.screen import NoScreenError, ScreenRefusedError, Screens
from coding_gym_server.grading.grading import Grading
from coding_gym_server.interpreter.contexts import HOME, Contexts, ContextSettings
from coding_gym_server.interpreter.files import FilesError, Workspace
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.lifetime import DeadManSwitch
from coding_gym_server.sessions import CapacityError, SessionDefaults, Sessions
from coding_gym_server.workers.leftovers import Leftovers
from coding_gym_server.workers.process_guard import ProcessGuard
from coding_gym_server.workers.unit import Kind
from coding_gym_server.workers.units import Units
from coding_gym_server.workers.zygote_process import ZygoteProcess

__all__ = ["create_app"]

_log = logging.getLogger(__name__)

_PYTHON_SHARED_MEMORY = ("psm_*", "sem.mp-*")


def create_app(
    config: ServerConfig,
    zygote: ZygoteProcess,
    *,
    confinement: Confinement,
    isolation: IsolationReport,
    end: Callable[[], None],
) -> ASGIApp:
    """Return the ASGI application.

    Args:
        config: The server's configuration.
        zygote: Started already; the application ends it.
        confinement: What sessions are confined to.
        isolation: What keeps sessions apart, shown by ``/health``.
        end: Called to end the server.
    """
    defaults = SessionDefaults(step_timeout=config.step_timeout, backend=config.backend, rewards=config.rewards)
    leftovers = Leftovers(
        private=config.private_directories,
        shared_memory=("*",) if config.private_shm else _PYTHON_SHARED_MEMORY,
        since=time.time(),
    )
    kind = Kind(backend=config.backend)
    screens = Screens(
        zygote=zygote,
        base=config.workspaces,
        opengl=config.opengl,
        available=can_have_screens(),
        shared=config.max_sessions > 1,
    )
    units = Units(zygote, config.workspaces, kind=kind, spares=config.spare_workers, leftovers=leftovers)
    sessions = Sessions(units, screens, defaults, limit=config.max_sessions)
    python = "notebook" if config.backend == "python" else config.backend
    contexts = Contexts(sessions, config.home_directory, ContextSettings(python=python))
    grading = Grading(zygote, config.workspaces, leftovers=leftovers, confinement=confinement)
    guard = ProcessGuard(
        lambda: [*units.all, *grading.booths],
        limit=config.max_processes,
        sharers=lambda: config.max_sessions + len(grading.booths),
    )

    def on_zygote_gone() -> None:
        _log.error("the zygote died too often: no session can start any more")
        end()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        zygote.attach(on_gone=on_zygote_gone)
        units.fill()
        watch = asyncio.create_task(guard.run())
        try:
            yield
        finally:
            watch.cancel()
            await units.close()
            grading.close()
            zygote.close()

    app: ASGIApp = Starlette(
        routes=[
            *http.routes(sessions, isolation),
            *interpreter_routes(contexts),
            *file_routes(Workspace(config.home_directory, home=HOME)),
        ],
        lifespan=lifespan,
        exception_handlers={
            BadRequestError: http.bad_request,
            BodyTooLargeError: http.body_too_large,
            CapacityError: http.at_capacity,
            FilesError: http.bad_option,
            NoScreenError: http.bad_option,
            ScreenRefusedError: http.bad_option,
            UnknownBackendError: http.bad_option,
            http.ClientGoneError: http.client_gone,
            ClientDisconnect: http.client_gone,
        },
    )
    app = _Dispatch(app, SessionEndpoint(sessions, grading))
    if config.token:
        app = TokenGuard(app, config.token)
    if config.idle_timeout is not None and config.first_client_within is not None:
        app = DeadManSwitch(app, first_client_within=config.first_client_within, idle_timeout=config.idle_timeout, fire=end)
    return app


class _Dispatch:
    """Sends the session route its own way: Starlette's wrappers round each message cost more than the message.

    Args:
        http: Everything else.
        sessions: ``/ws``.
    """

    def __init__(self, http: ASGIApp, sessions: ASGIApp) -> None:
        self._http = http
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_session = scope["type"] == "websocket" and scope["path"] == "/ws"
        await (self._sessions if is_session else self._http)(scope, receive, send)
