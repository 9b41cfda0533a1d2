"""Assembly of the server: zygote, executors, sessions and the ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.display.availability import can_have_screens
from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.launcher.client import LauncherClient
from coding_gym_server.linux.oom import memory_limit
from coding_gym_server.linux.procfs import is_mounted_in_memory
from coding_gym_server.server.api import openenv_http as http
from coding_gym_server.server.api.auth import BearerAuthMiddleware, SameOriginMiddleware
from coding_gym_server.server.api.code_interpreter import interpreter_routes, session_interpreter_route
from coding_gym_server.server.api.codec import BadRequestError
from coding_gym_server.server.api.files import file_routes
from coding_gym_server.server.api.metrics import MetricSources, metrics_route
from coding_gym_server.server.api.processes import process_error_handlers, process_routes
from coding_gym_server.server.api.request_body import BodyTooLargeError, ClientGoneError
from coding_gym_server.server.api.sandbox_fusion import sandbox_fusion_routes
from coding_gym_server.server.api.screen import screen_route
from coding_gym_server.server.api.shared_connection import SharedEndpoint
from coding_gym_server.server.api.web import is_public, web_routes
from coding_gym_server.server.api.websocket import SessionEndpoint
from coding_gym_server.server.code_interpreter.contexts import HOME, ContextNotFoundError, ContextRegistry, ContextSettings
from coding_gym_server.server.config import ServerConfig
from coding_gym_server.server.grading.measured_service import MeasuredGradingService
from coding_gym_server.server.idle_shutdown import IdleShutdown
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.memory_usage import MemoryUsage
from coding_gym_server.server.process_limiter import ProcessLimiter
from coding_gym_server.server.sandbox_fusion.code_runs import CodeRuns
from coding_gym_server.server.sandbox_fusion.notebook_runs import NotebookRuns
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionNotFoundError, SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.supervisor.display_handle import DisplayFactory, NoScreenError, ScreenRefusedError
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.seats import SeatFactory
from coding_gym_server.server.supervisor.session_zygotes import SessionZygotes
from coding_gym_server.server.supervisor.shared_files import SharedFiles, SharedFolder, SharedSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.worker.backends.registry import UnknownBackendError, is_installed
from coding_gym_server.workspace.file_errors import FilesError
from coding_gym_server.workspace.files import Workspace
from coding_gym_server.workspace.leftovers import ResidualFiles

__all__ = ["create_app"]

_log = logging.getLogger(__name__)

_PYTHON_SHARED_MEMORY = ("psm_*", "sem.mp-*")
_MAX_FILES_FRACTION = 0.25
"""Fraction of the memory that files of ended episodes may occupy while the next ones begin."""


def create_app(
    config: ServerConfig,
    zygote: ZygoteHandle,
    *,
    launcher: LauncherClient | None,
    profile: IsolationProfile,
    isolation: IsolationReport,
    end: Callable[[], None],
) -> ASGIApp:
    """Create the ASGI application.

    Args:
        config: The server's configuration.
        zygote: The started zygote. The application takes ownership of it.
        launcher: The connection to the launcher, whose end ends the server; None without a launcher.
        profile: Isolation profile of the sessions.
        isolation: Isolation features in use, reported by ``/health``.
        end: Called to shut the server down.
    """
    defaults = SessionDefaults(
        step_timeout=config.step_timeout, backend=config.backend, rewards=config.rewards, root=config.session_root
    )
    residual_files = ResidualFiles(
        private=config.private_directories,
        shared_memory=("*",) if config.private_shm else _PYTHON_SHARED_MEMORY,
        since=time.time(),
    )
    spec = ExecutorSpec(backend=config.backend, may_be_root=config.session_root)
    screens = DisplayFactory(
        zygote=zygote,
        base=config.workspaces,
        opengl=config.opengl,
        available=can_have_screens(),
        shared=config.max_sessions > 1,
    )
    measurements = Measurements(config.backend)
    memory = memory_limit() if is_mounted_in_memory(str(config.workspaces)) else None
    zygotes = SessionZygotes(zygote)
    executors = ExecutorPool(
        zygotes,
        config.workspaces,
        spec=spec,
        spares=config.spare_workers,
        residual_files=residual_files,
        users=profile.users,
        max_used_bytes=None if memory is None else memory * _MAX_FILES_FRACTION,
        measurements=measurements,
    )
    seats = SeatFactory(zygote, profile)
    sessions = SessionRegistry(executors, screens, defaults, seats, limit=config.max_sessions, measurements=measurements)
    python = "notebook" if config.backend == "python" and is_installed("notebook") else config.backend
    files: SharedFiles = SharedFolder(config.home_directory)
    if profile.users is not None:
        files = SharedSystem(zygote, profile.users.of_contexts, backend=config.backend)
    contexts = ContextRegistry(sessions, files, ContextSettings(python=python))
    grading = MeasuredGradingService(
        zygotes,
        config.workspaces,
        workers=config.grading_workers,
        residual_files=residual_files,
        profile=profile,
        measurements=measurements,
    )
    limiter = ProcessLimiter(
        lambda: [*executors.all, *grading.process_groups],
        limit=config.max_processes,
        group_count=lambda: config.max_sessions + executors.forks + len(grading.workers),
        apart=lambda: [frozen.pid for frozen in executors.frozen],
    )

    sources = MetricSources(
        measurements, sessions, executors, grading, MemoryUsage(is_container=config.private_shm and not config.confine_server)
    )

    async def session_of(identifier: str) -> ServerSession:
        return sessions.get(identifier)

    async def session_of_context(identifier: str) -> ServerSession:
        try:
            context = await contexts.default(None) if identifier == "default" else contexts.get(identifier)
        except ContextNotFoundError:
            raise SessionNotFoundError(identifier) from None
        return await context.session()

    async def shared_workspace(_: Request) -> Workspace:
        await files.start()
        return Workspace(files.seen_by_server(HOME), home=HOME, owner=files)

    async def session_workspace(request: Request) -> Workspace:
        executor = await sessions.get(request.path_params["session"]).executor_beside_steps()
        return Workspace(executor.directory.work, home=HOME, owner=executor.directory)

    def on_zygote_gone() -> None:
        _log.error("the zygote died repeatedly; shutting down because no session can start")
        end()

    def on_launcher_gone(loop: asyncio.AbstractEventLoop) -> None:
        assert launcher is not None
        loop.remove_reader(launcher.fileno())
        end()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        zygote.attach(on_gone=on_zygote_gone)
        executors.fill()
        loop = asyncio.get_running_loop()
        if launcher is not None:
            loop.add_reader(launcher.fileno(), on_launcher_gone, loop)
        watch = asyncio.create_task(limiter.run())
        try:
            yield
        finally:
            watch.cancel()
            await executors.close()
            grading.close()
            seats.close()
            zygotes.close()

    app: ASGIApp = Starlette(
        # In the order of what matters most: a request is compared with each route.
        routes=[
            *process_routes("/sessions/{session}", session_of),
            *sandbox_fusion_routes(CodeRuns(grading), NotebookRuns(sessions, backend=python)),
            *file_routes("/sessions/{session}/files", session_workspace),
            *http.routes(sessions, isolation),
            metrics_route(sources),
            *interpreter_routes(contexts),
            session_interpreter_route("/sessions/{session}/execute", session_of),
            *file_routes("/files", shared_workspace),
            *process_routes("/contexts/{session}", session_of_context),
            screen_route("/sessions/{session}/screen", session_of),
            *web_routes(sessions, defaults, interactive=python),
        ],
        lifespan=lifespan,
        exception_handlers={
            BadRequestError: http.bad_request,
            BodyTooLargeError: http.body_too_large,
            SessionLimitError: http.at_capacity,
            FilesError: http.bad_option,
            NoScreenError: http.bad_option,
            ScreenRefusedError: http.bad_option,
            UnknownBackendError: http.bad_option,
            ClientGoneError: http.client_gone,
            ClientDisconnect: http.client_gone,
            **process_error_handlers(),
        },
    )
    endpoint = SessionEndpoint(sessions, grading)
    app = _Dispatch(app, {"/ws": endpoint, "/ws/shared": SharedEndpoint(endpoint)})
    if config.token:
        app = BearerAuthMiddleware(app, config.token, is_public=is_public)
    app = SameOriginMiddleware(app, has_token=bool(config.token))
    if config.idle_timeout is not None and config.first_client_within is not None:
        app = IdleShutdown(app, first_client_within=config.first_client_within, idle_timeout=config.idle_timeout, fire=end)
    return app


class _Dispatch:
    """Dispatch the session routes directly: Starlette's wrappers of each message cost more than handling the message.

    Args:
        http: Application for all other routes.
        sessions: Applications for the paths of WebSockets.
    """

    def __init__(self, http: ASGIApp, sessions: Mapping[str, ASGIApp]) -> None:
        self._http = http
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._sessions.get(scope["path"], self._http) if scope["type"] == "websocket" else self._http
        await app(scope, receive, send)
