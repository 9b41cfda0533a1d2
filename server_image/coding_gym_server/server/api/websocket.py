"""WebSocket endpoint ``/ws``: one session per connection, and one response per request, in order."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.languages import LanguageMissingError
from coding_gym_server.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_HEADER,
    CheckMessage,
    CheckRequest,
    CloneRequest,
    CloseRequest,
    ErrorCode,
    ErrorData,
    ErrorMessage,
    ForkRequest,
    ForksData,
    ForksMessage,
    GradeRequest,
    InterruptRequest,
    McpMessage,
    McpRequest,
    ObservationMessage,
    ReleasedMessage,
    ReleaseRequest,
    Request,
    ResetOptions,
    ResetRequest,
    Response,
    RestoreRequest,
    ScreenMessage,
    ScreenRequest,
    ScreenRequestOptions,
    SessionData,
    SessionMessage,
    SnapshotData,
    SnapshotMessage,
    StateMessage,
    StateRequest,
    StepRequest,
    VerdictMessage,
)
from coding_gym_server.protocol.backends import UnknownBackendError
from coding_gym_server.protocol.processes import SESSION_HEADER
from coding_gym_server.server.api.auth import SUBPROTOCOL
from coding_gym_server.server.api.codec import BadRequestError, decode_request, encode_response, field_of, value_error
from coding_gym_server.server.api.openenv_mcp import answer_mcp
from coding_gym_server.server.api.output_stream import OutputStream
from coding_gym_server.server.sessions.doors import DoorsError
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionRegistry
from coding_gym_server.server.sessions.session import OnlyForkError, ServerSession
from coding_gym_server.server.supervisor.display_handle import InvalidScreenRequestError, ScreenUnavailableError
from coding_gym_server.server.supervisor.frozen_worker import SnapshotRefusedError
from coding_gym_server.workspace.file_errors import FilesError

if TYPE_CHECKING:
    from coding_gym_server.server.grading.service import GradingService

__all__ = ["SessionEndpoint"]

_Event = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Event]]
_Send = Callable[[_Event], Awaitable[None]]

_VERSION_HEADER = PROTOCOL_VERSION_HEADER.lower().encode()
_VERSION = str(PROTOCOL_VERSION).encode()
_SESSION_HEADER = SESSION_HEADER.lower().encode()
_NORMAL_CLOSURE = 1000
_POLICY_VIOLATION = 1008
_READ_AHEAD_AFTER = 0.01
"""Seconds after which a running step makes the endpoint read ahead from the connection."""

_MAX_AHEAD_BYTES = 2 * MAX_FRAME_BYTES
"""Maximum number of bytes that a client may send ahead of its responses; above it, the connection is closed."""

_FRAME_OVERHEAD = 100
_MAX_INTERRUPT_BYTES = 64
_MAX_QUOTED_CHARS = 100

_log = logging.getLogger(__name__)


class SessionEndpoint:
    """ASGI application for the WebSocket route.

    Args:
        sessions: The registry that opens the session of a connection.
        grading: Returns the service that grades submissions.
    """

    def __init__(self, sessions: SessionRegistry, grading: Callable[[], GradingService]) -> None:
        self._sessions = sessions
        self._grading = grading

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        await receive()
        session = None
        refusal = _refusal(scope)
        if refusal is None:
            try:
                session = self._sessions.open(fork_of=_fork_of(scope))
            except SessionLimitError as error:
                refusal = _at_capacity(error)
        headers = [(_VERSION_HEADER, _VERSION), *([(_SESSION_HEADER, session.id.encode())] if session is not None else [])]
        try:
            await send({"type": "websocket.accept", "headers": headers, "subprotocol": _subprotocol(scope)})
            if session is not None and _query(scope).get("announce"):
                await _reply(send, SessionMessage(SessionData(session=session.id)), binary=False)
            code = None if session is None else await _Conversation(session, self._grading, receive, send).run()
        finally:
            if session is not None:
                self._sessions.close(session)
        if refusal is not None:
            await _refuse(send, refusal)
        # After the session is closed: the close waits until the client has read everything sent before it.
        elif code is not None:
            await send({"type": "websocket.close", "code": code})


def _at_capacity(error: SessionLimitError) -> ErrorData:
    return ErrorData(
        message=str(error), code=ErrorCode.CAPACITY_REACHED, active_sessions=error.active, max_sessions=error.limit
    )


def _fork_of(scope: _Event) -> str | None:
    """Return the snapshot that a connection's session is to continue from, None if the handshake names none."""
    return next(iter(_query(scope).get("fork_of", [])), None)


def _subprotocol(scope: _Event) -> str | None:
    """Return the accepted subprotocol. Browsers that offer subprotocols end the connection if none is accepted."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None


def _query(scope: _Event) -> dict[str, list[str]]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1"))


def _refusal(scope: _Event) -> ErrorData | None:
    """Return why a connection gets no session, None if nothing in its handshake prevents one."""
    if (version := dict(scope["headers"]).get(_VERSION_HEADER, _VERSION)) != _VERSION:
        quoted = truncate_middle(version.decode("latin-1"), _MAX_QUOTED_CHARS)
        message = f"This client speaks wire protocol {quoted}, this server speaks {PROTOCOL_VERSION}"
        return ErrorData(message=message, code=ErrorCode.SESSION_ERROR)
    if requested := _query(scope).get("session_id"):
        # A session cannot outlive its connection, so there is never one to resume.
        quoted = truncate_middle(requested[0], _MAX_QUOTED_CHARS)
        return ErrorData(message=f"Unknown session_id: {quoted}", code=ErrorCode.SESSION_ERROR)
    return None


class _Conversation:
    """Processes the frames of a connection sequentially.

    During a long step, the next frames are read ahead: only a read detects that the client has disconnected, or has sent an
    interrupt request.

    Args:
        session: The session of the connection.
        grading: Returns the service that grades submissions.
        receive: The ASGI receive callable.
        send: The ASGI send callable.
    """

    def __init__(self, session: ServerSession, grading: Callable[[], GradingService], receive: _Receive, send: _Send) -> None:
        self._session = session
        self._grading = grading
        self._receive = receive
        self._send = send
        self._prefetched: deque[str | bytes] = deque()
        self._ahead_bytes = 0
        self._disconnected = False

    async def run(self) -> int | None:
        """Process frames until the client disconnects or requests to close.

        Returns:
            The code to close the connection with, or None if it is already closed.
        """
        task = asyncio.current_task()
        assert task is not None
        try:
            while (frame := await self._next_frame()) is not None:
                reader = _Delayed(_READ_AHEAD_AFTER, lambda: self._read_ahead(task))
                try:
                    last = await self._answer_frame(frame)
                finally:
                    reader.cancel()
                if last:
                    return _NORMAL_CLOSURE
        except asyncio.CancelledError:
            if not self._disconnected:
                raise
            task.uncancel()
            return _POLICY_VIOLATION
        return None

    async def _next_frame(self) -> str | bytes | None:
        if not self._prefetched:
            self._ahead_bytes = 0
            return await self._read()
        return self._prefetched.popleft()

    async def _read(self) -> str | bytes | None:
        event = await self._receive()
        if event["type"] != "websocket.receive":
            return None
        text: str | None = event.get("text")
        frame: str | bytes = event["bytes"] if text is None else text
        return frame

    async def _read_ahead(self, conversation: asyncio.Task[None]) -> None:
        while True:
            frame = await self._read()
            self._ahead_bytes += len(frame or "") + _FRAME_OVERHEAD
            if frame is None or self._ahead_bytes > _MAX_AHEAD_BYTES:
                self._disconnected = True
                conversation.cancel()
                return
            if _is_interrupt(frame):
                self._session.interrupt()
            else:
                self._prefetched.append(frame)

    async def _answer_frame(self, frame: str | bytes) -> bool:
        """Respond to a frame, and return whether it was the last one."""
        last = False
        response: Response
        try:
            request = decode_request(frame)
            if isinstance(request, CloseRequest):
                return True
            if isinstance(request, InterruptRequest):
                # The step that it refers to has already ended.
                return False
            async with self._session.turn:
                if isinstance(request, StepRequest) and request.data.stream:
                    async with OutputStream(functools.partial(_reply, self._send, binary=isinstance(frame, bytes))) as stream:
                        response = ObservationMessage(await self._session.step(request.data, on_event=stream.add))
                else:
                    response = await _answer(self._session, self._grading, request)
        except BadRequestError as error:
            last = error.data.code is ErrorCode.SESSION_ERROR
            response = ErrorMessage(error.data)
        except (
            DoorsError,
            FilesError,
            LanguageMissingError,
            ScreenUnavailableError,
            InvalidScreenRequestError,
            UnknownBackendError,
        ) as error:
            faults = [value_error(["data", field_of(error)], str(error))]
            response = ErrorMessage(ErrorData(message=str(error), code=ErrorCode.VALIDATION_ERROR, errors=faults))
        except OnlyForkError as error:
            response = ErrorMessage(ErrorData(message=str(error), code=ErrorCode.CAPACITY_REACHED))
        except SnapshotRefusedError as error:
            faults = [value_error(["data", "snapshot"], reason) for reason in error.reasons]
            response = ErrorMessage(ErrorData(message=str(error), code=ErrorCode.SNAPSHOT_REFUSED, errors=faults))
        except Exception as error:  # noqa: BLE001 - an internal error is reported to the client as well
            _log.exception("a request failed")
            response = ErrorMessage(ErrorData(message=f"{type(error).__name__}: {error}", code=ErrorCode.EXECUTION_ERROR))
        await _reply(self._send, response, binary=isinstance(frame, bytes))
        return last


def _is_interrupt(frame: str | bytes) -> bool:
    if len(frame) > _MAX_INTERRUPT_BYTES:
        return False
    try:
        return isinstance(decode_request(frame), InterruptRequest)
    except BadRequestError:
        return False


class _Delayed:
    """A task that starts after a delay, unless it is canceled first.

    Args:
        delay: The delay in seconds.
        work: Factory of the coroutine to run.
    """

    def __init__(self, delay: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(delay, self._start)
        self._task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work())


async def _answer(session: ServerSession, grading: Callable[[], GradingService], request: Request) -> Response:
    match request:
        case StepRequest(action):
            return ObservationMessage(await session.step(action))
        case ResetRequest(options):
            return ObservationMessage(await session.reset(options or ResetOptions()))
        case GradeRequest(submission):
            return VerdictMessage(await grading().grade(submission))
        case CheckRequest(reference):
            return CheckMessage(await grading().check(reference))
        case CloneRequest():
            snapshot = await session.clone()
            return SnapshotMessage(
                SnapshotData(snapshot=snapshot.id, step_count=snapshot.state.step_count, nbytes=snapshot.frozen.files.size)
            )
        case RestoreRequest(options):
            return ObservationMessage(await session.restore(options.snapshot, seed=options.seed, release=options.release))
        case ForkRequest(options):
            forks = await session.fork(options.count)
            return ForksMessage(ForksData(snapshots=forks, step_count=session.state.step_count))
        case ReleaseRequest(options):
            session.release(options.snapshots)
            return ReleasedMessage()
        case ScreenRequest(options):
            return ScreenMessage(await session.capture_screen(options or ScreenRequestOptions()))
        case StateRequest():
            return StateMessage(session.state)
        case McpRequest(call):
            return McpMessage(answer_mcp(call))
    raise AssertionError(request)


async def _refuse(send: _Send, data: ErrorData) -> None:
    """Send the reason why the client does not get a session, and close the connection."""
    await _reply(send, ErrorMessage(data), binary=False)
    await send({"type": "websocket.close", "code": _NORMAL_CLOSURE})


async def _reply(send: _Send, response: Response, *, binary: bool) -> None:
    encoded = encode_response(response, binary=binary)
    await send({"type": "websocket.send", "bytes" if binary else "text": encoded})
