"""Assembly of the server: zygote, executors, sessions and the ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.display.availability import can_have_screens
from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.launcher.client import LauncherClient
from coding_gym_server.linux.oom import memory_limit
from coding_gym_server.linux.procfs import is_mounted_in_memory
from coding_gym_server.protocol import ServerConfig
from coding_gym_server.protocol.backends import UnknownBackendError
from coding_gym_server.same_origin import SameOriginMiddleware
from coding_gym_server.server.api.auth import BearerAuthMiddleware
from coding_gym_server.server.api.codec import BadRequestError
from coding_gym_server.server.api.doors import DoorsEndpoint, doors_route
from coding_gym_server.server.api.files import file_routes
from coding_gym_server.server.api.health import (
    at_capacity,
    bad_option,
    bad_request,
    body_too_large,
    client_gone,
    health_route,
)
from coding_gym_server.server.api.lazy_routes import LazyRoutes
from coding_gym_server.server.api.processes import process_error_handlers, process_routes
from coding_gym_server.server.api.request_body import BodyTooLargeError, ClientGoneError
from coding_gym_server.server.api.screen import screen_route
from coding_gym_server.server.api.shared_connection import SharedEndpoint
from coding_gym_server.server.api.websocket import SessionEndpoint
from coding_gym_server.server.disk_watch import DiskWatch
from coding_gym_server.server.idle_shutdown import IdleShutdown
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.process_limiter import ProcessGroup, ProcessLimiter
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.doors import DoorsError
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionNotFoundError, SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.supervisor.display_handle import DisplayFactory, InvalidScreenRequestError, ScreenUnavailableError
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.fork_slots import ForkSlotFactory
from coding_gym_server.server.supervisor.session_zygotes import SessionZygotes
from coding_gym_server.server.supervisor.shared_files import SharedContainer, SharedFiles, SharedSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.server.threads import FileLease
from coding_gym_server.server.wear import Wear
from coding_gym_server.worker.backends.registry import is_installed
from coding_gym_server.workspace.file_errors import FilesError
from coding_gym_server.workspace.files import Files, Workspace
from coding_gym_server.workspace.image_programs import ImagePrograms
from coding_gym_server.workspace.layout import PRIVATE
from coding_gym_server.workspace.session_directory import ContainerDirectory

if TYPE_CHECKING:
    from coding_gym_server.server.code_interpreter.contexts import ContextRegistry, SessionContexts
    from coding_gym_server.server.grading.service import GradingService

__all__ = ["create_app"]

_log = logging.getLogger(__name__)

_LAST_ANSWERS_SECONDS = 1.0
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
    image: ImagePrograms | None = None,
) -> ASGIApp:
    """Create the ASGI application.

    Args:
        config: The server's configuration.
        zygote: The started zygote. The application takes ownership of it.
        launcher: The connection to the launcher, whose end ends the server; None without a launcher.
        profile: Isolation profile of the sessions.
        isolation: Isolation features in use, reported by ``/health``.
        end: Called to shut the server down.
        image: How programs of sessions run if they are those of another image, else None.
    """
    defaults = SessionDefaults(
        step_timeout=config.step_timeout,
        backend=config.default_backend,
        rewards=config.rewards,
        root=config.session_root,
        private_network=profile.internet and not config.network,
    )
    spec = ExecutorSpec(backend=config.default_backend, may_be_root=config.session_root)
    screens = DisplayFactory(
        zygote=zygote,
        base=config.workspaces,
        opengl=config.opengl,
        available=can_have_screens(),
        shared=profile.users is not None and profile.users.network,
    )
    measurements = Measurements(config.default_backend)
    memory = memory_limit() if is_mounted_in_memory(str(config.workspaces)) else None
    zygotes = SessionZygotes(zygote)
    container = ContainerDirectory(config.workspaces) if profile.users is None else None
    of_root = None if image is None else image.layout
    executors = ExecutorPool(
        zygotes,
        container,
        spec=spec,
        spares=config.spare_workers,
        users=profile.users,
        max_used_bytes=None if memory is None else memory * _MAX_FILES_FRACTION,
        measurements=measurements,
        of_root=of_root or PRIVATE,
    )
    slots = ForkSlotFactory(zygote, profile)
    sessions = SessionRegistry(executors, screens, defaults, slots, limit=config.max_sessions, measurements=measurements)
    python = "notebook" if config.default_backend == "python" and is_installed("notebook") else config.default_backend
    files: SharedFiles
    if profile.users is not None:
        files = SharedSystem(zygote, profile.users.of_contexts, backend=config.default_backend, of_root=of_root)
    else:
        assert container is not None
        files = SharedContainer(container, executors.wait_until_shareable)

    # What a session does not need is imported by the first request for it.

    @functools.cache
    def contexts() -> ContextRegistry:
        from coding_gym_server.server.code_interpreter.contexts import ContextRegistry, ContextSettings

        return ContextRegistry(sessions, files, ContextSettings(python=python, cwd=(of_root or PRIVATE).work))

    @functools.cache
    def contexts_of_sessions() -> SessionContexts:
        from coding_gym_server.server.code_interpreter.contexts import ContextSettings, SessionContexts

        return SessionContexts(sessions, ContextSettings(python=python, cwd=(of_root or PRIVATE).work))

    @functools.cache
    def grading() -> GradingService:
        from coding_gym_server.server.grading.service import GradingService

        return GradingService(
            zygotes,
            config.workspaces,
            workers=config.grading_workers if container is None else 1,
            profile=profile,
            overlay=config.overlay,
            measurements=measurements,
        )

    def present_grading() -> GradingService | None:
        return grading() if grading.cache_info().currsize else None

    def graded_groups() -> list[ProcessGroup]:
        service = present_grading()
        return [] if service is None else service.process_groups

    def grading_workers() -> int:
        service = present_grading()
        return 0 if service is None else len(service.workers)

    limiter = ProcessLimiter(
        lambda: [*executors.all, *graded_groups()],
        limit=config.max_processes,
        group_count=lambda: config.max_sessions + executors.forks + grading_workers(),
        apart=lambda: executors.frozen_pids,
    )

    disks = None
    if config.layers is not None:
        disks = DiskWatch(lambda: executors.all, max_bytes=config.session_disk_bytes, max_inodes=config.max_inodes)

    def sandbox_fusion() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.sandbox_fusion import sandbox_fusion_routes
        from coding_gym_server.server.sandbox_fusion.code_runs import CodeRuns
        from coding_gym_server.server.sandbox_fusion.notebook_runs import NotebookRuns

        return sandbox_fusion_routes(CodeRuns(grading()), NotebookRuns(sessions, backend=python))

    def openenv() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.openenv_http import openenv_routes

        return openenv_routes(sessions)

    def metrics() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.metrics import MetricSources, metrics_route
        from coding_gym_server.server.memory_usage import MemoryUsage

        memory = MemoryUsage(is_container=config.container)
        return [metrics_route(MetricSources(measurements, sessions, executors, grading(), memory))]

    def interpreter() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.code_interpreter import interpreter_routes

        return interpreter_routes(lambda _: contexts())

    def interpreters_of_sessions() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.code_interpreter import interpreter_routes

        def of_request(request: Request) -> ContextRegistry:
            return contexts_of_sessions().of(sessions.get(request.path_params["session"]))

        return interpreter_routes(of_request, prefix="/sessions/{session}")

    def web() -> Sequence[BaseRoute]:
        from coding_gym_server.server.api.web import web_routes

        return web_routes(sessions, defaults, interactive=python)

    async def session_of(identifier: str) -> ServerSession:
        return sessions.get(identifier)

    async def session_of_context(identifier: str) -> ServerSession:
        from coding_gym_server.server.code_interpreter.contexts import ContextNotFoundError

        try:
            context = await contexts().default(None) if identifier == "default" else contexts().get(identifier)
        except ContextNotFoundError:
            raise SessionNotFoundError(identifier) from None
        return await context.session()

    # The files that contexts share end with the server.
    lease_of_shared = FileLease()

    @contextlib.asynccontextmanager
    async def shared_workspace(_: Request) -> AsyncIterator[tuple[Files, FileLease]]:
        if image is not None:
            executor = await (await session_of_context("default")).executor_beside_steps()
            async with executor.files_of_programs() as workspace:
                yield workspace, lease_of_shared
        else:
            await files.start()
            yield Workspace(files.seen_by_server(PRIVATE.home), home=PRIVATE.home), lease_of_shared

    @contextlib.asynccontextmanager
    async def session_workspace(request: Request) -> AsyncIterator[tuple[Files, FileLease]]:
        executor = await sessions.get(request.path_params["session"]).executor_beside_steps()
        async with executor.files() as workspace:
            yield workspace, executor.lease

    def on_zygote_gone() -> None:
        _log.error("the zygote died repeatedly; shutting down because no session can start")
        # What has been asked for gets the reason first.
        asyncio.get_running_loop().call_later(_LAST_ANSWERS_SECONDS, end)

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
        watches = [asyncio.create_task(each.run()) for each in (limiter, disks) if each is not None]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
            await executors.close()
            if (service := present_grading()) is not None:
                service.close()
            slots.close()
            zygotes.close()

    app: ASGIApp = Starlette(
        # In the order of what matters most: a request is compared with each route.
        routes=[
            *process_routes("/sessions/{session}", session_of),
            LazyRoutes("/run_code", "/run_jupyter", "/v1/ping", make=sandbox_fusion),
            *file_routes("/sessions/{session}/files", session_workspace),
            health_route(sessions, isolation, Wear()),
            LazyRoutes("/metrics", make=metrics),
            LazyRoutes("/execute", "/contexts", make=interpreter),
            LazyRoutes("/sessions/", make=interpreters_of_sessions),
            *file_routes("/files", shared_workspace),
            *process_routes("/contexts/{session}", session_of_context),
            screen_route("/sessions/{session}/screen", session_of),
            doors_route("/sessions/{session}/doors/{port}", session_of),
            Route("/", lambda _: RedirectResponse("/web")),
            LazyRoutes("/web", make=web),
            LazyRoutes("/", make=openenv),
        ],
        lifespan=lifespan,
        exception_handlers={
            BadRequestError: bad_request,
            BodyTooLargeError: body_too_large,
            SessionLimitError: at_capacity,
            DoorsError: bad_option,
            FilesError: bad_option,
            ScreenUnavailableError: bad_option,
            InvalidScreenRequestError: bad_option,
            UnknownBackendError: bad_option,
            ClientGoneError: client_gone,
            ClientDisconnect: client_gone,
            **process_error_handlers(),
        },
    )
    endpoint = SessionEndpoint(sessions, grading)
    app = _Dispatch(app, {"/ws": endpoint, "/ws/shared": SharedEndpoint(endpoint)}, DoorsEndpoint(sessions))
    app = BearerAuthMiddleware(app, config.token or None)
    app = SameOriginMiddleware(app, has_token=bool(config.token))
    if config.idle_timeout is not None and config.first_client_within is not None:
        app = IdleShutdown(app, first_client_within=config.first_client_within, idle_timeout=config.idle_timeout, fire=end)
    return app


class _Dispatch:
    """Dispatch the session routes directly: Starlette's wrappers of each message cost more than handling the message.

    Args:
        http: Application for all other routes.
        sessions: Applications for the paths of WebSockets.
        doors: Application for the WebSockets of doors.
    """

    def __init__(self, http: ASGIApp, sessions: Mapping[str, ASGIApp], doors: DoorsEndpoint) -> None:
        self._http = http
        self._sessions = sessions
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._http
        if scope["type"] == "websocket":
            path = scope["path"]
            app = self._sessions.get(path) or (self._doors if self._doors.serves(path) else app)
        await app(scope, receive, send)
