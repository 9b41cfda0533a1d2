"""``BashSessions``: the bash processes of a sandbox, each in a context of the code interpreter."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from swerex.exceptions import SessionDoesNotExistError, SessionExistsError

from coding_gym.client.processes import ProcessResult, call_in_own_thread, run_process
from coding_gym.code_interpreter.client import CodeInterpreter, Context
from coding_gym.code_interpreter.execution import Execution
from coding_gym.errors import TransportError
from coding_gym_trainers._commands import kept, losses

__all__ = ["BashSessions"]

_UNLIMITED = 7 * 24 * 3600.0
"""Limit in seconds of commands without one: the server requires one."""

_MERGED = "exec 2>&1; "
"""Bash prints both streams to one, as in a terminal. On the first line, so that the numbers of lines are the command's."""

_SHORTEST = 0.001
_LOST = "UnexpectedEndOfExecution"


class BashSessions:
    """Bash sessions by their names, and one more, for programs that outlive them.

    All methods raise ``TransportError`` if the sandbox is gone.

    Args:
        interpreter: The sandbox.
    """

    def __init__(self, interpreter: CodeInterpreter) -> None:
        self._interpreter = interpreter
        self._contexts: dict[str, Context] = {}
        self._starting: set[str] = set()
        self._programs: Context | None = None
        self._programs_lock = threading.Lock()

    async def create(self, name: str) -> None:
        """Start a bash. Raises ``SessionExistsError`` if there is one with this name, or it is being started."""
        if name in self._contexts or name in self._starting:
            message = f"session {name} already exists"
            raise SessionExistsError(message)
        self._starting.add(name)
        try:
            self._contexts[name] = await call_in_own_thread(self._bash)
        finally:
            self._starting.discard(name)

    def check(self, name: str) -> Context:
        """Return the context of a session. Raises ``SessionDoesNotExistError`` if there is none."""
        if name not in self._contexts:
            message = f"session {name!r} does not exist"
            raise SessionDoesNotExistError(message)
        return self._contexts[name]

    async def delete(self, name: str) -> None:
        """End a bash, and what it runs. Raises ``SessionDoesNotExistError`` if there is no such session."""
        context = self.check(name)
        del self._contexts[name]
        await call_in_own_thread(lambda: self._interpreter.contexts.delete(context))

    async def interrupt(self, name: str) -> None:
        """Interrupt what a session runs. Raises ``SessionDoesNotExistError`` if there is none."""
        context = self.check(name)
        await call_in_own_thread(lambda: self._interpreter.contexts.interrupt(context))

    async def execute(self, name: str, command: str, timeout: float | None) -> Execution:
        """Execute a command in a session, and interrupt it if the call is canceled.

        Raises:
            SessionDoesNotExistError: If there is none.
        """
        context, code = self.check(name), f"{_MERGED}{command}"
        limit = _UNLIMITED if timeout is None else max(timeout, _SHORTEST)
        try:
            with losses():
                execution = await call_in_own_thread(lambda: self._interpreter.execute(code, context=context, timeout=limit))
        except asyncio.CancelledError:
            threading.Thread(target=self._interpreter.contexts.interrupt, args=(context,), daemon=True).start()
            raise
        if execution.error is not None and execution.error.name == _LOST:
            message = f"The command ended with its session: {execution.error.traceback}"
            raise TransportError(message)
        return execution

    async def run(self, command: list[str], **options: Any) -> ProcessResult:
        """Run a program outside of the sessions."""
        with losses():
            context = self._programs or await call_in_own_thread(self._context_of_programs)
            return kept(await run_process(self._interpreter.processes(context), command, **options))

    def clear(self) -> None:
        """Forget the sessions, whose sandbox is closed."""
        self._contexts.clear()

    def _context_of_programs(self) -> Context:
        with self._programs_lock:
            self._programs = self._programs or self._bash()
            return self._programs

    def _bash(self) -> Context:
        return self._interpreter.contexts.create(language="bash")
