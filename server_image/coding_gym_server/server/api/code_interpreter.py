"""The code-interpreter API: ``/execute``, which streams, and ``/contexts``.

Routes, request bodies, messages and errors are those of e2b's server (``e2b-dev/code-interpreter``), so that its SDK works
with this server unchanged. In addition, ``/execute`` accepts ``timeout``, in seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from coding_gym_server.protocol import ERROR_CODE_HEADER, ErrorCode
from coding_gym_server.protocol.backends import JUPYTER_PREFIX, UnknownBackendError
from coding_gym_server.server.api.request_body import read_body, until_gone
from coding_gym_server.server.api.routing import by_method
from coding_gym_server.server.api.validation import BodyValidator
from coding_gym_server.server.code_interpreter import messages
from coding_gym_server.server.code_interpreter.cells import ContextRefusedError, SessionInterpreter
from coding_gym_server.server.code_interpreter.contexts import (
    ContextNotFoundError,
    ContextRegistry,
    InterpreterContext,
    WorkingDirectoryError,
)
from coding_gym_server.server.code_interpreter.languages import DEFAULT_LANGUAGE, backend_of, normalize
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS
from coding_gym_server.worker.backends.jupyter.kernelspecs import missing_kernel

__all__ = ["interpreter_routes"]

_KEEPALIVE_SECONDS = 5.0

_INVALID_OPTION = {ERROR_CODE_HEADER: ErrorCode.VALIDATION_ERROR.value}
"""Tells coding_gym's client that a retry of the request would be rejected as well, which e2b's status code does not."""


def interpreter_routes(find: Callable[[Request], ContextRegistry], *, prefix: str = "") -> list[Route]:
    """Return the routes of the code-interpreter API.

    Args:
        find: Returns the contexts that a request is about.
        prefix: Beginning of their paths.
    """

    async def execute(request: Request) -> Response:
        contexts = find(request)
        body = BodyValidator(await read_body(request))
        code = body.string("code")
        identifier = body.string("context_id", optional=True)
        language = body.string("language", optional=True)
        environment = body.variables("env_vars")
        timeout = body.seconds("timeout")
        quotes = body.flag("quotes")
        body.check()
        if identifier and language:
            return PlainTextResponse("Only one of context_id or language can be provided", 400)
        try:
            context = contexts.get(identifier) if identifier else await contexts.default(language)
        except ContextNotFoundError as error:
            return PlainTextResponse(str(error), 404)
        except UnknownBackendError as error:
            return _not_installed(language or DEFAULT_LANGUAGE, error)

        async def run(emit: Callable[[bytes], None]) -> None:
            await context.execute(code or "", environment=environment, timeout=timeout, quotes=quotes, emit=emit)

        return _Execution(context, run)

    async def list_contexts(request: Request) -> Response:
        return JSONResponse([_described(context) for context in await find(request).list()])

    async def create(request: Request) -> Response:
        contexts = find(request)
        body = BodyValidator(await read_body(request))
        language = body.string("language", optional=True) or DEFAULT_LANGUAGE
        cwd = body.string("cwd", optional=True)
        body.check()
        try:
            return JSONResponse(_described(await contexts.create(language, cwd)))
        except WorkingDirectoryError as error:
            return PlainTextResponse(str(error), 400, _INVALID_OPTION)
        except UnknownBackendError as error:
            return _not_installed(language, error)
        except INFRASTRUCTURE_ERRORS as error:
            return PlainTextResponse(f"Failed to create context: {error}", 500)

    async def restart(request: Request) -> Response:
        return await _done(lambda: find(request).get(request.path_params["id"]).restart())

    async def interrupt(request: Request) -> Response:
        return await _done(lambda: find(request).get(request.path_params["id"]).interrupt())

    async def delete(request: Request) -> Response:
        return await _done(lambda: find(request).delete(request.path_params["id"]))

    return [
        Route(f"{prefix}/execute", execute, methods=["POST"]),
        by_method(f"{prefix}/contexts", GET=list_contexts, POST=create),
        Route(f"{prefix}/contexts/{{id}}/restart", restart, methods=["POST"]),
        Route(f"{prefix}/contexts/{{id}}/interrupt", interrupt, methods=["POST"]),
        Route(f"{prefix}/contexts/{{id}}", delete, methods=["DELETE"]),
    ]


class _Execution(Response):
    """Streaming response with the output of a running execution; a client disconnect interrupts the execution.

    Args:
        context: The interpreter that executes the code.
        run: Executes the code, and emits the lines of the response.
    """

    def __init__(
        self, context: InterpreterContext | SessionInterpreter, run: Callable[[Callable[[bytes], None]], Awaitable[None]]
    ) -> None:
        super().__init__(media_type="application/x-ndjson")
        del self.headers["content-length"]
        self._context = context
        self._run = run
        self._lines: list[bytes] = []
        self._updated = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        execution = asyncio.create_task(self._execute())
        execution.add_done_callback(lambda _: self._updated.set())
        client = asyncio.create_task(until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(execution, client, send)
        finally:
            client.cancel()
            if not execution.done():
                await self._interrupt(execution)

    async def _execute(self) -> None:
        await self._run(self._emit)

    def _emit(self, line: bytes) -> None:
        self._lines.append(line)
        self._updated.set()

    async def _stream(self, execution: asyncio.Task[None], client: asyncio.Task[None], send: Send) -> None:
        client.add_done_callback(lambda _: self._updated.set())
        while not execution.done():
            if not self._updated.is_set():
                timer = asyncio.get_running_loop().call_later(_KEEPALIVE_SECONDS, self._emit, messages.KEEPALIVE)
                try:
                    await self._updated.wait()
                finally:
                    timer.cancel()
            self._updated.clear()
            if client.done():
                return
            if self._lines and not execution.done():
                await _send_body(send, self._take(), more=True)
        if (error := execution.exception()) is not None:
            self._emit(messages.error_line(messages.lost(error)))
        self._emit(messages.END)
        await _send_body(send, self._take(), more=False)

    def _take(self) -> bytes:
        lines = b"".join(self._lines)
        self._lines.clear()
        return lines

    async def _interrupt(self, execution: asyncio.Task[None]) -> None:
        """Interrupt an execution whose client has disconnected, and wait until it has ended."""
        self._context.give_up(execution)
        await asyncio.wait([execution])


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _done(action: Any) -> Response:
    try:
        work: Awaitable[None] = action()
        await work
    except ContextNotFoundError as error:
        return PlainTextResponse(str(error), 404)
    except ContextRefusedError as error:
        return PlainTextResponse(str(error), 409)
    except INFRASTRUCTURE_ERRORS as error:
        return PlainTextResponse(f"The context failed: {error}", 500)
    return JSONResponse(None)


def _described(context: InterpreterContext | SessionInterpreter) -> dict[str, str]:
    return {"id": context.id, "language": context.language, "cwd": context.cwd}


def _not_installed(language: str, error: UnknownBackendError) -> Response:
    """Return the response of e2b's server for a missing kernel, which quotes Jupyter's message; for programs, the error."""
    backend = backend_of(normalize(language), python=DEFAULT_LANGUAGE)
    kernel = backend.removeprefix(JUPYTER_PREFIX)
    message = str(error) if kernel == backend else missing_kernel(kernel)
    reason = json.dumps({"message": message, "short_message": f"{kernel} not found"})
    return PlainTextResponse(f"Failed to create context: {reason}", 500, _INVALID_OPTION)
