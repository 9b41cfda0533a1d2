"""One execution of a cell: running it under its limits, and describing how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Execute, Finished, FromProcess, Raised
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import Outcome
from coding_gym_server.server.supervisor.watchdog import StepWatchdog, TimeLimits
from coding_gym_server.server.supervisor.worker_handle import Event, WorkerHandle

__all__ = ["SIGKILLED", "CellRun", "CompletedCell", "exit_code_of"]

SIGKILLED = 128 + signal.SIGKILL
"""Exit code of a process killed by SIGKILL."""


class CompletedCell(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a cell.

    Attributes:
        outcome: Category of the outcome.
        exit_code: Exit code, 0..255.
        state_lost: Whether the variables are lost.
        stdout: Output on descriptor 1 since the last step, except what was delivered as events.
        stderr: Output on descriptor 2 since the last step, except what was delivered as events, followed by ``note``.
        note: Reason for an abnormal end and its effect on the variables; empty after a normal end.
        raised: Exception that a rich cell raised, or None.
    """

    outcome: Outcome
    exit_code: int
    state_lost: bool
    stdout: str
    stderr: str
    note: str
    raised: Raised | None

    def explained(self, note: str, max_output_chars: int) -> CompletedCell:
        """Return the outcome with another line of explanation in ``stderr`` and ``note``.

        Args:
            note: The line.
            max_output_chars: Maximum number of code points of stderr.
        """
        stderr = truncate_middle(self.stderr + note, max_output_chars)
        return msgspec.structs.replace(self, stderr=stderr, note=self.note + note)


class CellRun:
    """A running cell, which can be paused: the cell continues while no step waits for it.

    Args:
        worker: The worker that executes the cell.
        dead: Previous worker, if it died since the last step. Its remaining output belongs to this cell.
        root: Channel to the session root.
        slot: Number of the session's slot.
        on_interrupted: Called when an interrupt has been sent.

    Attributes:
        worker: The worker that executes the cell.
        finished: The worker's result; None while the cell runs, or if it was killed or its worker died.
        has_ended: Whether the cell has finished, its worker has died or the watchdog has given it up.
        expired: Whether a limit was reached.
    """

    def __init__(
        self,
        worker: WorkerHandle,
        dead: WorkerHandle | None,
        root: AsyncChannel[FromProcess],
        slot: int,
        *,
        on_interrupted: Callable[[], None],
    ) -> None:
        self.worker = worker
        self.finished: Finished | None = None
        self.has_ended = False
        self.expired = False
        self._dead = dead
        self._root = root
        self._slot = slot
        self._on_interrupted = on_interrupted
        self._wakeup: asyncio.Future[None] | None = None
        self._watchdog: StepWatchdog | None = None

    async def advance(
        self, limits: TimeLimits, cell: Execute | None, on_event: Callable[[Event], None] | None, *, interrupt: bool
    ) -> bool:
        """Run until the cell ends or ``pause`` is called; return whether it has ended.

        Args:
            limits: Time limits.
            cell: The cell to send to the worker; None to continue one that is running.
            on_event: Called with each output and result as it arrives, or None.
            interrupt: Whether to interrupt the cell as soon as it starts.
        """
        self._wakeup = asyncio.get_running_loop().create_future()
        watchdog = self._watchdog = StepWatchdog(
            self._root,
            self._slot,
            limits,
            worker=self.worker.pid,
            on_given_up=lambda: self.end(None),
            on_interrupted=self._on_interrupted,
        )
        try:
            await watchdog.start()
            if cell is not None:
                self.worker.execute(cell, on_event)
            else:
                self.worker.attach(on_event)
            if interrupt:
                watchdog.interrupt()
            if not self.has_ended:
                await self._wakeup
            if not self.has_ended:
                self.worker.end_events()
                return False
        except ChannelClosedError:
            self.end(None)
        finally:
            self._watchdog = None
            await watchdog.stop()
        self.expired = watchdog.expired
        return True

    def interrupt(self, *, is_closing: bool = False) -> None:
        """Interrupt the cell as Ctrl-C does, if a step waits for it; see ``InterruptWorker``."""
        if self._watchdog is not None:
            self._watchdog.interrupt(is_closing=is_closing)

    def pause(self) -> None:
        """Make ``advance`` return and leave the cell running."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def end(self, finished: Finished | None) -> None:
        """Record the end of the cell; later calls have no effect.

        Args:
            finished: The worker's result, or None without one.
        """
        if not self.has_ended:
            self.has_ended, self.finished = True, finished
            self.pause()

    def result(
        self, outcome: Outcome, exit_code: int, limits: TimeLimits, *, kill_reason: str, max_output_chars: int
    ) -> CompletedCell:
        """Collect the output and close the workers that have died.

        Args:
            outcome: Category of the outcome.
            exit_code: Exit code, 0..255.
            limits: The limits of the last step, for the note.
            kill_reason: The reason why the processes were killed, or empty.
            max_output_chars: Maximum number of code points of stdout, and of stderr.
        """
        state_lost = self._dead is not None or self.finished is None
        note = _note(outcome, exit_code, limits, state_lost=state_lost, kill_reason=kill_reason)
        stdout, stderr = ("", note) if self.worker.end_events() else self.worker.take_output(note)
        if self._dead is not None:
            last_stdout, last_stderr = self._dead.take_output()
            stdout = truncate_middle(last_stdout + stdout, max_output_chars)
            stderr = truncate_middle(last_stderr + stderr, max_output_chars)
            self._dead.close()
        if self.finished is None:
            self.worker.close()
        return CompletedCell(
            outcome=outcome,
            exit_code=exit_code,
            state_lost=state_lost,
            stdout=stdout,
            stderr=stderr,
            note=note,
            raised=self.finished.raised if self.finished is not None else None,
        )


def exit_code_of(status: int | None) -> int:
    """Return the exit code for a wait status as shells do: that of the process, or 128 plus the signal number.

    Args:
        status: Wait status; None counts as killed by SIGKILL.
    """
    if status is None:
        return SIGKILLED
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _note(outcome: Outcome, exit_code: int, limits: TimeLimits, *, state_lost: bool, kill_reason: str) -> str:
    """Return a line for stderr that explains an abnormal end and its effect on the variables; empty after a normal end."""
    kept = "variables are lost, files are kept" if state_lost else "variables are kept"
    match outcome:
        case Outcome.TIMEOUT:
            budget = f" (CPU budget: {limits.cpu:g} s)" if limits.cpu is not None else ""
            return f"[timed out after {limits.wall:g} s{budget}; {kept}]\n"
        case Outcome.MEMORY:
            return f"[killed: out of memory; {kept}]\n"
        case _ if kill_reason:
            return f"[killed: {kill_reason}; {kept}]\n"
        case Outcome.KILLED:
            return f"[the interpreter died with exit code {exit_code}; {kept}]\n"
        case _ if state_lost:
            return f"[the interpreter had died since the last step; {kept}]\n"
    return ""
