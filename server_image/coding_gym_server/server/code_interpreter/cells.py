"""Cells of the code-interpreter API: their messages, and those of a session that is not a context."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable

from coding_gym_server.display.encoding import png
from coding_gym_server.ipc.messages import CellResult, Execute
from coding_gym_server.protocol import Outcome
from coding_gym_server.server.code_interpreter import messages
from coding_gym_server.server.code_interpreter.languages import DEFAULT_LANGUAGE
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS, ServerSession
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.worker_handle import Event, OutputChunk
from coding_gym_server.workspace.layout import PRIVATE

__all__ = ["DEFAULT_TIMEOUT", "ContextRefusedError", "SessionInterpreter", "run_cell"]

DEFAULT_TIMEOUT = 300.0
"""Wall-clock limit of an execution in seconds, unless the request specifies one."""


class ContextRefusedError(ValueError):
    """The interpreter of a session can be neither restarted nor deleted by itself."""

    def __init__(self) -> None:
        super().__init__("This is the interpreter of the session: create another context, or end the session")


async def run_cell(
    session: ServerSession, cell: Execute, limits: TimeLimits, *, quotes: bool, emit: Callable[[bytes], None]
) -> bool:
    """Run a cell to its end, and emit its messages line by line; return whether the variables have been lost.

    Args:
        session: The session.
        cell: The cell.
        limits: Time limits.
        quotes: Whether the text of a string has its quotes.
        emit: Callback for each encoded line.

    Raises:
        INFRASTRUCTURE_ERRORS: If the sandbox fails to run it.
    """

    def on_event(event: Event) -> None:
        emit(messages.printed(event) if isinstance(event, OutputChunk) else messages.result(event, quotes=quotes))

    seen = await session.execute(cell, limits, on_event=on_event)
    if seen.picture is not None and seen.is_new:
        emit(messages.result(CellResult({"image/png": png(seen.picture)}, {}, is_value=False), quotes=quotes))
    completion = seen.completion
    assert completion is not None
    error = messages.error_of(completion)
    if completion.note and completion.outcome is Outcome.OK:
        emit(messages.printed(OutputChunk("stderr", completion.note)))
    if error is not None:
        emit(messages.error_line(error, state_lost=completion.state_lost))
    return completion.state_lost


class SessionInterpreter:
    """The interpreter of a session as the code-interpreter API has it: executions and steps run in the order of arrival.

    Args:
        session: The session.

    Attributes:
        id: Its id among the contexts of the session.
        language: The language that it executes.
        cwd: The directory in which an episode begins.
    """

    language = DEFAULT_LANGUAGE
    cwd = PRIVATE.home

    def __init__(self, session: ServerSession) -> None:
        self.id = str(uuid.uuid4())
        self._session = weakref.proxy(session)
        self._count = 0
        self._running: asyncio.Task[None] | None = None

    async def execute(
        self,
        code: str,
        *,
        environment: dict[str, str],
        timeout: float | None,
        quotes: bool = False,
        emit: Callable[[bytes], None],
    ) -> None:
        """Execute code after the executions before it, and emit its messages line by line.

        Args:
            code: The code to execute.
            environment: Environment variables that are set during the execution.
            timeout: Wall-clock limit in seconds; None for the default.
            quotes: Whether the text of a string has its quotes.
            emit: Callback for each encoded line.
        """
        async with self._session.turn:
            if code.strip():
                self._count += 1
            emit(messages.counted(self._count))
            self._running = asyncio.current_task()
            limits = TimeLimits(wall=timeout or DEFAULT_TIMEOUT)
            try:
                if await run_cell(self._session, Execute(code, environment, rich=True), limits, quotes=quotes, emit=emit):
                    self._count = 0
            except INFRASTRUCTURE_ERRORS as failure:
                self._count = 0
                emit(messages.error_line(messages.lost(failure), state_lost=True))
            finally:
                self._running = None

    def give_up(self, execution: asyncio.Task[None]) -> None:
        """Interrupt an execution, as Ctrl-C does, or cancel it if it has not begun.

        Args:
            execution: The task that runs ``execute``.
        """
        if execution is self._running:
            self._session.interrupt()
        else:
            execution.cancel()

    async def session(self) -> ServerSession:
        """Return the session."""
        session: ServerSession = self._session
        return session

    async def interrupt(self) -> None:
        """Interrupt the running execution, as Ctrl-C does, if there is one; the queued ones follow."""
        if self._running is not None:
            self._session.interrupt()

    async def restart(self) -> None:
        """Refuse: all processes of the session would end with the interpreter.

        Raises:
            ContextRefusedError: Always.
        """
        raise ContextRefusedError

    def close(self) -> None:
        """Do nothing: the session ends by itself."""
