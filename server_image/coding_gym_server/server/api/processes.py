"""HTTP routes for the processes of a session: start, follow, list, signal, and write to stdin."""

from __future__ import annotations

import asyncio
import base64
import os
import pwd
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.isolation import session_user
from coding_gym_server.protocol import ERROR_CODE_HEADER, ErrorCode
from coding_gym_server.protocol.processes import (
    EVENT_FRAMES,
    FRAME_LENGTH,
    CompletedProcess,
    ProcessEvent,
    ProcessExited,
    ProcessRequest,
    SignalRequest,
    TerminalSize,
)
from coding_gym_server.server.api.codec import BadRequestError, decode_json
from coding_gym_server.server.api.request_body import read_body, run_while_connected, until_gone
from coding_gym_server.server.api.routing import InvalidFlagError, by_method, flag
from coding_gym_server.server.sessions.registry import SessionNotFoundError
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS, EpisodeLostError, ServerSession
from coding_gym_server.server.supervisor.processes import Process, ProcessNotFoundError, TooManyProcessesError

__all__ = ["process_error_handlers", "process_routes"]

_T = TypeVar("_T")

_encoder = msgspec.json.Encoder()
_frame_encoder = msgspec.msgpack.Encoder()
_JSON = "application/json"
_MAX_WHOLE_BYTES = 1 << 20
"""Maximum number of bytes of output that are encoded at once: the encoder holds up the event loop, and all its threads."""

_PART_BYTES = 3 << 16
"""A multiple of 3, so that the base64 of the parts is that of the whole."""

_MAX_DIGITS = 18
_MAX_QUOTED_CHARS = 100


class _NotPossibleError(Exception):
    """The state of the process does not permit the request."""


class _InvalidError(Exception):
    """The request is invalid."""


class _EventStream(Response):
    """Streaming response with the events of a process, as lines or frames, until the client disconnects.

    Starlette's own starts a group of tasks per response, which costs more than the rest of the response.

    Args:
        process: The process.
        request: The request, which says in which form.
        stdout: Number of bytes of stdout that the client has already.
        stderr: Number of bytes of stderr that the client has already.
    """

    def __init__(self, process: Process, request: Request, *, stdout: int = 0, stderr: int = 0) -> None:
        has_frames = request.headers.get("accept") == EVENT_FRAMES
        super().__init__(media_type=EVENT_FRAMES if has_frames else "application/x-ndjson")
        del self.headers["content-length"]
        self._encode = _frame if has_frames else _line
        self._process = process
        self._stdout = stdout
        self._stderr = stderr

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for events in self._process.events(stdout=self._stdout, stderr=self._stderr):
                # Keepalives bound the time until a disconnected client is noticed.
                if gone.done():
                    return
                is_last = isinstance(events[-1], ProcessExited)
                await send(
                    {"type": "http.response.body", "body": b"".join(map(self._encode, events)), "more_body": not is_last}
                )
        finally:
            gone.cancel()


def process_routes(prefix: str, find: Callable[[str], Awaitable[ServerSession]]) -> list[Route]:
    """Return the routes for the processes of the sessions below a path.

    Args:
        prefix: Path of a session with the parameter ``session``, such as ``/sessions/{session}``.
        find: Returns the session with an id; raises ``SessionNotFoundError`` if there is none.
    """

    async def start(request: Request) -> Response:
        process = await _start(await _session(request), await _body(request, ProcessRequest))
        return _EventStream(process, request)

    async def run(request: Request) -> Response:
        process = await _start(await _session(request), await _body(request, ProcessRequest))
        try:
            result = await run_while_connected(request, process.wait())
        finally:
            await process.signal(signal.SIGKILL)
        if process.output_bytes > _MAX_WHOLE_BYTES:
            return StreamingResponse(_parts(result, *process.output), media_type=_JSON)
        stdout, stderr = map(bytes, process.output)
        return _json(CompletedProcess(result=result, stdout=stdout, stderr=stderr))

    async def list_all(request: Request) -> Response:
        executor = await (await _session(request)).executor_beside_steps()
        return _json([process.info for process in executor.processes.list()])

    async def follow(request: Request) -> Response:
        process = await _process(request)
        return _EventStream(process, request, stdout=_offset(request, "stdout"), stderr=_offset(request, "stderr"))

    async def write(request: Request) -> Response:
        process = await _process(request)
        ends = flag(request, "end")
        try:
            async for chunk in request.stream():
                if chunk:
                    await process.write(chunk)
        except BrokenPipeError:
            message = "Stdin of the process is closed: it was not kept open, has been closed, or is not read any more"
            raise _NotPossibleError(message) from None
        if ends:
            process.end_input()
        return Response(status_code=204)

    async def send_signal(request: Request) -> Response:
        process = await _process(request)
        await process.signal((await _body(request, SignalRequest)).signal)
        return Response(status_code=204)

    async def resize(request: Request) -> Response:
        process = await _process(request)
        size = await _body(request, TerminalSize)
        try:
            process.resize(size)
        except (ValueError, OSError) as error:
            message = str(error)
            raise _NotPossibleError(message) from error
        return Response(status_code=204)

    async def usage(request: Request) -> Response:
        executor = await (await _session(request)).executor_beside_steps()
        return _json(await executor.usage())

    async def _session(request: Request) -> ServerSession:
        return await find(request.path_params["session"])

    async def _process(request: Request) -> Process:
        executor = await (await _session(request)).executor_beside_steps()
        return executor.processes.get(request.path_params["process"])

    one = f"{prefix}/processes/{{process}}"
    return [
        Route(f"{prefix}/exec", run, methods=["POST"]),
        by_method(f"{prefix}/processes", GET=list_all, POST=start),
        by_method(one, GET=follow),
        Route(f"{prefix}/usage", usage, methods=["GET"]),
        Route(f"{one}/stdin", write, methods=["POST"]),
        Route(f"{one}/signal", send_signal, methods=["POST"]),
        Route(f"{one}/terminal", resize, methods=["POST"]),
    ]


def process_error_handlers() -> dict[type[Exception], Callable[[Request, Exception], Response]]:
    """Return the handlers of the errors that the routes raise, by type."""
    return {
        SessionNotFoundError: _respond_with(404),
        EpisodeLostError: _respond_with(410),
        ProcessNotFoundError: _respond_with(404),
        _NotPossibleError: _respond_with(409),
        **dict.fromkeys((_InvalidError, InvalidFlagError), _respond_with(422, {ERROR_CODE_HEADER: ErrorCode.VALIDATION_ERROR})),
        TooManyProcessesError: _respond_with(429),
        **dict.fromkeys(INFRASTRUCTURE_ERRORS, _respond_with(503)),
    }


async def _start(session: ServerSession, request: ProcessRequest) -> Process:
    executor = await session.executor_beside_steps()
    names = _names_of_user(os.getuid() if executor.user is None else session_user.USER)
    if request.user is not None and request.user not in names and not executor.spec.is_root:
        message = f"user={request.user!r} is not available: processes run as the session's user, {names[-1]}"
        raise _InvalidError(message)
    if not executor.spec.is_root:
        request = msgspec.structs.replace(request, user=None)
    try:
        return await executor.start_process(request)
    except ChannelClosedError:
        # If the episode has been lost, say so.
        await session.executor_beside_steps()
        raise


def _names_of_user(uid: int) -> list[str]:
    try:
        return [str(uid), pwd.getpwuid(uid).pw_name]
    except KeyError:
        return [str(uid)]


def _offset(request: Request, name: str) -> int:
    value = request.query_params.get(name, "0")
    if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
        message = f"Expected {name}= to be a number of bytes, got {truncate_middle(value, _MAX_QUOTED_CHARS)!r}"
        raise _InvalidError(message)
    return int(value)


async def _body(request: Request, kind: type[_T]) -> _T:
    try:
        return decode_json(await read_body(request), kind)
    except BadRequestError as error:
        details = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.data.errors or []]
        raise _InvalidError("; ".join(details) or str(error)) from error


def _line(event: ProcessEvent) -> bytes:
    return _encoder.encode(event) + b"\n"


def _frame(event: ProcessEvent) -> bytes:
    content = _frame_encoder.encode(event)
    return FRAME_LENGTH.pack(len(content)) + content


def _json(content: object) -> Response:
    return Response(_encoder.encode(content), media_type=_JSON)


async def _parts(result: ProcessExited, stdout: memoryview, stderr: memoryview) -> AsyncIterator[bytes]:
    """Yield a ``CompletedProcess`` as JSON in parts, between which the event loop serves other requests."""
    yield b'{"result":' + _encoder.encode(result)
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        yield f',"{name}":"'.encode()
        for start in range(0, len(data), _PART_BYTES):
            yield base64.b64encode(data[start : start + _PART_BYTES])
            await asyncio.sleep(0)
        yield b'"'
    yield b"}"


def _respond_with(status_code: int, headers: dict[str, str] | None = None) -> Callable[[Request, Exception], Response]:
    def respond(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error) or type(error).__name__, status_code, headers)

    return respond
