"""``/ws``: one connection, one session, one answer to each request, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from coding_gym_server.api.codec import BadRequestError, decode_request, encode_response, field_of, value_error
from coding_gym_server.api.mcp import answer_mcp
from coding_gym_server.backends import UnknownBackendError
from coding_gym_server.display.screen import NoScreenError, ScreenRefusedError
from coding_gym_server.grading.grading import Grading
from coding_gym_server.interpreter.files import FilesError
from coding_gym_server.protocol import (
    MAX_FRAME_BYTES,
    Close,
    Error,
    ErrorCode,
    ErrorData,
    Grade,
    Interrupt,
    Look,
    Mcp,
    McpMessage,
    ObservationMessage,
    Request,
    Reset,
    ResetOptions,
    Response,
    ScreenMessage,
    State,
    StateMessage,
    Step,
    VerdictMessage,
)
from coding_gym_server.sessions import CapacityError, Session, Sessions
from coding_gym_server.workers.capture import cut_middle

__all__ = ["SessionEndpoint"]

_Event = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Event]]
_Send = Callable[[_Event], Awaitable[None]]

_NORMAL_CLOSURE = 1000
_POLICY_VIOLATION = 1008
_READ_AHEAD_AFTER = 0.01
"""Seconds that a step may take before the connection is watched."""

_MAX_AHEAD_BYTES = 2 * MAX_FRAME_BYTES
"""What a client may send ahead of its answers; more costs it the connection."""

_FRAME_OVERHEAD = 100
_MAX_INTERRUPT_BYTES = 64
_MAX_QUOTED_CHARS = 100

_log = logging.getLogger(__name__)


class SessionEndpoint:
    """An ASGI application for the WebSocket route.

    Args:
        sessions: Where a connection gets its session.
        grading: Grades submissions.
    """

    def __init__(self, sessions: Sessions, grading: Grading) -> None:
        self._sessions = sessions
        self._grading = grading

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if wanted := parse_qs(scope.get("query_string", b"").decode("latin-1")).get("session_id"):
            # Nor can one be made that would outlive its connection.
            quoted = cut_middle(wanted[0], _MAX_QUOTED_CHARS)
            await _refuse(send, ErrorData(message=f"Unknown session_id: {quoted}", code=ErrorCode.SESSION_ERROR))
            return
        try:
            session = self._sessions.open()
        except CapacityError as error:
            data = ErrorData(
                message=str(error), code=ErrorCode.CAPACITY_REACHED, active_sessions=error.active, max_sessions=error.limit
            )
            await _refuse(send, data)
            return
        try:
            code = await _Conversation(session, self._grading, receive, send).run()
        finally:
            self._sessions.close(session)
        # Last, for it waits until the client has read all that was sent to it before.
        if code is not None:
            await send({"type": "websocket.close", "code": code})


class _Conversation:
    """Answers one frame after the other.

    While a step takes long, the next frames are read ahead of their turn: only a read notices that the connection has dropped,
    or that the client wants the step interrupted.

    Args:
        session: The connection's session.
        grading: Grades submissions.
        receive: ASGI's.
        send: ASGI's.
    """

    def __init__(self, session: Session, grading: Grading, receive: _Receive, send: _Send) -> None:
        self._session = session
        self._grading = grading
        self._receive = receive
        self._send = send
        self._ahead: deque[str | bytes] = deque()
        self._ahead_bytes = 0
        self._gone = False

    async def run(self) -> int | None:
        """Converse until the client is gone or asks to close; returns the code to close the connection with, if it is open."""
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
            if not self._gone:
                raise
            task.uncancel()
            return _POLICY_VIOLATION
        return None

    async def _next_frame(self) -> str | bytes | None:
        if not self._ahead:
            self._ahead_bytes = 0
            return await self._read()
        return self._ahead.popleft()

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
                self._gone = True
                conversation.cancel()
                return
            if _is_interrupt(frame):
                self._session.interrupt()
            else:
                self._ahead.append(frame)

    async def _answer_frame(self, frame: str | bytes) -> bool:
        """Answer a frame; says whether it was the last."""
        last = False
        response: Response
        try:
            request = decode_request(frame)
            if isinstance(request, Close):
                return True
            if isinstance(request, Interrupt):
                # The step that it was for has ended.
                return False
            response = await _answer(self._session, self._grading, request)
        except BadRequestError as error:
            last = error.data.code is ErrorCode.SESSION_ERROR
            response = Error(error.data)
        except (FilesError, NoScreenError, ScreenRefusedError, UnknownBackendError) as error:
            faults = [value_error(["data", field_of(error)], str(error))]
            response = Error(ErrorData(message=str(error), code=ErrorCode.VALIDATION_ERROR, errors=faults))
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            _log.exception("a request failed")
            response = Error(ErrorData(message=f"{type(error).__name__}: {error}", code=ErrorCode.EXECUTION_ERROR))
        await _reply(self._send, response, binary=isinstance(frame, bytes))
        return last


def _is_interrupt(frame: str | bytes) -> bool:
    if len(frame) > _MAX_INTERRUPT_BYTES:
        return False
    try:
        return isinstance(decode_request(frame), Interrupt)
    except BadRequestError:
        return False


class _Delayed:
    """A task that starts after a delay, unless it is cancelled before.

    Args:
        delay: Seconds.
        work: Makes the coroutine.
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


async def _answer(session: Session, grading: Grading, request: Request) -> Response:
    match request:
        case Step(action):
            return ObservationMessage(await session.step(action))
        case Reset(options):
            return ObservationMessage(await session.reset(options or ResetOptions()))
        case Grade(submission):
            return VerdictMessage(await grading.grade(submission))
        case Look(options):
            return ScreenMessage(await session.look(options.region if options is not None else None))
        case State():
            return StateMessage(session.state)
        case Mcp(call):
            return McpMessage(answer_mcp(call))
    raise AssertionError(request)


async def _refuse(send: _Send, data: ErrorData) -> None:
    """Tell a client why there is no session for it, and close its connection."""
    await _reply(send, Error(data), binary=False)
    await send({"type": "websocket.close", "code": _NORMAL_CLOSURE})


async def _reply(send: _Send, response: Response, *, binary: bool) -> None:
    encoded = encode_response(response, binary=binary)
    await send({"type": "websocket.send", "bytes" if binary else "text": encoded})
