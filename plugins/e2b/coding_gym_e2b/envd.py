"""envd: the processes and files of a sandbox."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coding_gym_e2b import filesystem_messages as files
from coding_gym_e2b import process_messages as processes
from coding_gym_e2b.connect_protocol import EventStream, Message, deadline_of, read_message, read_messages, unary
from coding_gym_e2b.failures import ApiError, RpcError, SandboxGoneError, rpc_response
from coding_gym_e2b.file_transfer import download, form_spool, upload
from coding_gym_e2b.filesystem import FilesystemService
from coding_gym_e2b.registry import SandboxRegistry
from coding_gym_e2b.sandbox import E2BSandbox
from coding_gym_e2b.users import account_of, user_of
from coding_gym_server.server.api.admission import admit

__all__ = ["EnvdRequests", "envd_routes"]

_HOST = re.compile(r"(?P<port>\d+)-(?P<id>[a-z0-9]+)\.")


class EnvdRequests:
    """Finds the sandbox that a request is for, and checks that its client may use it.

    Args:
        registry: The sandboxes.
    """

    def __init__(self, registry: SandboxRegistry) -> None:
        self._registry = registry

    async def sandbox(self, request: Request) -> E2BSandbox:
        """Return the sandbox of a request with its token.

        Raises:
            SandboxGoneError: If there is none, or it is paused.
            ApiError: If the token is missing or wrong.
        """
        token = request.headers.get("x-access-token", "")
        identifier = self.identifier(request)
        if not identifier:
            # SDKs with another address for all sandboxes do not name them in each request.
            sandbox = self._registry.find(lambda sandbox: sandbox.has_token(token))
        else:
            sandbox = self._registry.find(lambda _: True, identifier)
            if not sandbox.has_token(token):
                raise ApiError(401, "The access token of the sandbox is missing or wrong")
        return await self._admit(request, sandbox)

    async def named(self, request: Request) -> E2BSandbox:
        """Return the sandbox that a request names by its id, which only its client knows; without a name, by its token.

        Raises:
            SandboxGoneError: If there is none, or it is paused.
        """
        identifier = self.identifier(request)
        if not identifier:
            return await self.sandbox(request)
        return await self._admit(request, self._registry.find(lambda _: True, identifier))

    def check_running(self, request: Request) -> None:
        """Check that the sandbox of a request runs, which needs no token if the request names it, and resumes none.

        Raises:
            SandboxGoneError: If there is none, or it is paused.
        """
        token = request.headers.get("x-access-token", "")
        identifier = self.identifier(request)
        sandbox = self._registry.find(lambda sandbox: bool(identifier) or sandbox.has_token(token), identifier)
        if sandbox.is_paused:
            raise SandboxGoneError(sandbox.id)

    async def of_file(self, request: Request, operation: str) -> E2BSandbox:
        """Return the sandbox of a request for a file, with its token or a signature.

        Args:
            request: The request.
            operation: ``read`` or ``write``.
        """
        query = request.query_params
        signature = query.get("signature")
        if request.headers.get("x-access-token") or signature is None:
            return await self.sandbox(request)
        expiration = query.get("signature_expiration", "")
        path, user = query.get("path", ""), query.get("username", "")

        def matches(sandbox: E2BSandbox) -> bool:
            return sandbox.is_signed(signature, path, operation, user, expiration)

        try:
            sandbox = self._registry.find(matches, self.identifier(request))
        except SandboxGoneError as error:
            raise ApiError(401, "invalid signature") from error
        if expiration and not (expiration.isdecimal() and len(expiration) <= 18 and int(expiration) >= time.time()):
            raise ApiError(401, "signature is already expired")
        return await self._admit(request, sandbox)

    async def _admit(self, request: Request, sandbox: E2BSandbox) -> E2BSandbox:
        admit(request.scope)
        await self._registry.wake(sandbox)
        return sandbox

    def identifier(self, request: Request) -> str:
        """Return the id of the sandbox that a request names in its header or its host, empty if it names none."""
        if named := request.headers.get("e2b-sandbox-id"):
            return named
        host = _HOST.match(request.headers.get("host", ""))
        return host["id"] if host else ""


def envd_routes(requests: EnvdRequests) -> list[Route]:
    """Return the routes of envd.

    Args:
        requests: Finds the sandboxes of requests.
    """
    forms = form_spool()

    async def health(request: Request) -> Response:
        if not requests.identifier(request) and "x-access-token" not in request.headers:
            # The health of the gateway.
            return JSONResponse({"status": "healthy"})
        requests.check_running(request)
        return Response(status_code=204)

    async def envs(request: Request) -> Response:
        return JSONResponse(dict((await requests.sandbox(request)).lifecycle.environment))

    async def get_file(request: Request) -> Response:
        sandbox = await requests.of_file(request, "read")
        return await download(request, sandbox)

    async def post_file(request: Request) -> Response:
        sandbox = await requests.of_file(request, "write")
        return await upload(request, sandbox, forms)

    routes = [
        Route("/health", health, methods=["GET"]),
        Route("/envs", envs, methods=["GET"]),
        Route("/files", get_file, methods=["GET"]),
        Route("/files", post_file, methods=["POST"]),
    ]

    def procedure(path: str, handler: Callable[[Request, E2BSandbox], Awaitable[Response]]) -> None:
        async def handle(request: Request) -> Response:
            sandbox = await requests.sandbox(request)
            try:
                request.state.user = account_of(user_of(request), sandbox)
                return await handler(request, sandbox)
            except RpcError as error:
                return rpc_response(error)

        routes.append(Route(path, handle, methods=["POST"]))

    def plain(service: str, name: str, kind: Any, method: Callable[[E2BSandbox], Callable[[Any], Awaitable[Message]]]) -> None:
        async def handle(request: Request, sandbox: E2BSandbox) -> Response:
            return await unary(request, kind, method(sandbox))

        procedure(f"/{service}/{name}", handle)

    def of_files(name: str, kind: Any, method: Callable[[FilesystemService, Any], Awaitable[Message]]) -> None:
        async def handle(request: Request, sandbox: E2BSandbox) -> Response:
            service = FilesystemService(sandbox.files, request.state.user)
            return await unary(request, kind, functools.partial(method, service))

        procedure(f"/filesystem.Filesystem/{name}", handle)

    async def start(request: Request, sandbox: E2BSandbox) -> Response:
        message = await read_message(request, processes.StartRequest)
        deadline, user = deadline_of(request), request.state.user
        if user:
            # Fails if the user does not exist.
            await sandbox.files.call("stat_path", user=user, path="/")
        return EventStream(sandbox.processes.start(message, timeout=deadline, user=user), deadline=deadline)

    async def connect(request: Request, sandbox: E2BSandbox) -> Response:
        message = await read_message(request, processes.SelectRequest)
        return EventStream(sandbox.processes.connect(message), deadline=deadline_of(request))

    async def stream_input(request: Request, sandbox: E2BSandbox) -> Response:
        is_read = asyncio.Event()

        async def events() -> AsyncIterator[processes.InputStreamEvent]:
            async for event in read_messages(request, processes.InputStreamEvent):
                yield event
            is_read.set()

        async def answer() -> AsyncGenerator[Message, None]:
            yield await sandbox.processes.stream_input(events())

        return EventStream(answer(), deadline=deadline_of(request), is_read=is_read)

    async def watch(request: Request, sandbox: E2BSandbox) -> Response:
        message = await read_message(request, files.WatchRequest)
        return EventStream(FilesystemService(sandbox.files, request.state.user).watch(message), deadline=deadline_of(request))

    process = "process.Process"
    procedure(f"/{process}/Start", start)
    procedure(f"/{process}/Connect", connect)
    procedure(f"/{process}/StreamInput", stream_input)
    plain(process, "List", processes.Empty, lambda sandbox: sandbox.processes.list_all)
    plain(process, "Update", processes.UpdateRequest, lambda sandbox: sandbox.processes.update)
    plain(process, "SendInput", processes.InputRequest, lambda sandbox: sandbox.processes.send_input)
    plain(process, "SendSignal", processes.SignalRequest, lambda sandbox: sandbox.processes.send_signal)
    plain(process, "CloseStdin", processes.SelectRequest, lambda sandbox: sandbox.processes.close_stdin)
    procedure("/filesystem.Filesystem/WatchDir", watch)
    of_files("Stat", files.PathRequest, FilesystemService.stat)
    of_files("MakeDir", files.PathRequest, FilesystemService.make_directory)
    of_files("Move", files.MoveRequest, FilesystemService.move)
    of_files("ListDir", files.ListRequest, FilesystemService.list_directory)
    of_files("Remove", files.PathRequest, FilesystemService.remove)
    of_files("CreateWatcher", files.WatchRequest, FilesystemService.create_watcher)
    of_files("GetWatcherEvents", files.WatcherRequest, FilesystemService.watcher_events)
    of_files("RemoveWatcher", files.WatcherRequest, FilesystemService.remove_watcher)
    return routes
