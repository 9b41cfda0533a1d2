"""A unit: one session root with its worker, workspace and output pipes; what a session runs in.

A unit outlives episodes: ``recycle`` kills all that ran in it, empties its workspace and forks a new worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coding_gym_server.isolation import oom
from coding_gym_server.protocol import TIMEOUT_EXIT_CODE, Outcome
from coding_gym_server.workers import workspace
from coding_gym_server.workers.capture import cut_middle
from coding_gym_server.workers.link import Link, LinkClosedError
from coding_gym_server.workers.messages import (
    Configure,
    Execute,
    Failed,
    Finished,
    ForkRoot,
    ForkWorker,
    FromProcess,
    Kill,
    Killed,
    Raised,
    ToProcess,
    WorkerExited,
    WorkerForked,
)
from coding_gym_server.workers.watchdog import Limits, Watchdog
from coding_gym_server.workers.worker_end import DEFAULT_MAX_OUTPUT_CHARS, Event, WorkerEnd
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Completion", "Kind", "Unit"]

_ROOT_ANSWERS_WITHIN = 10.0
_SIGKILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a unit is for the whole of its life.

    Attributes:
        backend: What executes its cells.
        shared: A directory that it has in common with others; None if there is none.
    """

    backend: str = "python"
    shared: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How a step ended.

    Attributes:
        outcome: Why it ended.
        exit_code: 0..255.
        state_lost: Whether the namespace is gone.
        stdout: What was written to descriptor 1 since the last step, if it has not been handed out as events.
        stderr: What was written to descriptor 2, likewise, with the note at its end.
        note: Why the step was cut short and what became of the namespace; empty if nothing is to be said.
        raised: What a rich cell raised.
    """

    outcome: Outcome
    exit_code: int
    state_lost: bool
    stdout: str
    stderr: str
    note: str
    raised: Raised | None


class Unit:
    """One isolated place to run code. Made by ``Unit.start``.

    Args:
        directory: Its workspace.
        kind: What it is.
    """

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.workspace = directory
        self.kind = kind
        self._broken = False
        self.root_pid = 0
        self.being_replaced = False
        self.on_interrupted: Callable[[], None] = _nothing
        self._root: Link[FromProcess]
        self._worker: WorkerEnd | None = None
        self._configuration: Configure | None = None
        self._max_output_chars = DEFAULT_MAX_OUTPUT_CHARS
        self._run: _Run | None = None
        self._watchdog: Watchdog | None = None
        self._interrupt_due = False
        self._overrun = ""
        self._is_killed = False

    @classmethod
    async def start(cls, zygote: ZygoteProcess, base: Path, kind: Kind) -> Unit:
        """Fork a root from the zygote and a worker from the root, in a new directory below ``base``.

        Raises:
            ForkError: There are no processes, memory or disk left, or the backend cannot be loaded.
            LinkClosedError: The zygote or the root died.
        """
        unit = cls(_random_name(base), kind)
        unit.workspace.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        unit._root = Link(ours, on_message=unit._on_root_message, on_closed=unit._on_root_closed)
        try:
            with theirs:
                shared = None if kind.shared is None else str(kind.shared)
                request = ForkRoot(str(unit.workspace), kind.backend, shared)
                unit.root_pid = await zygote.fork_root(request, theirs)
            workspace.repair(str(unit.workspace))
            await unit._replace_worker()
        except BaseException:
            unit.close()
            asyncio.get_running_loop().run_in_executor(None, unit.remove_workspace)
            raise
        return unit

    @property
    def is_alive(self) -> bool:
        """Whether neither the root nor the worker is known to have died."""
        return not self._broken and self._worker is not None and not self._worker.gone

    def configure(self, configuration: Configure, *, max_output_chars: int) -> None:
        """Set the worker up for an episode, and any worker that has to take its place. It must not have run anything yet."""
        self._configuration = configuration
        self._max_output_chars = max_output_chars
        assert self._worker is not None
        self._worker.configure(self._configuration, max_output_chars)

    @property
    def is_running(self) -> bool:
        """Whether a cell runs that ``execute`` or ``resume`` has left running."""
        return self._run is not None

    @property
    def worker_pid(self) -> int:
        """The process that runs the cells."""
        assert self._worker is not None
        return self._worker.pid

    async def execute(
        self,
        cell: Execute,
        limits: Limits,
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Completion | None:
        """Run a cell to its end or to the end of its time, or until ``pause``; none may be running.

        A worker that dies, in the step or since the last one, is replaced by a new one in the same workspace.

        Args:
            cell: The cell.
            limits: Its time.
            on_event: Called with what the cell shows as it comes. Without it, all that is printed is in the completion.

        Returns:
            How it ended; None if it has been left running.

        Raises:
            ForkError: The worker died and no new one could be forked.
            LinkClosedError: The root died.
        """
        assert self._worker is not None
        assert self._run is None
        if self._broken:
            # Nobody would tell of the worker's end.
            raise LinkClosedError
        self._interrupt_due = False
        dead = None
        if self._worker.gone:
            dead, _ = await self._replace_worker()
        self._run = _Run(self._worker, dead)
        return await self._go_on(limits, cell, on_event)

    async def resume(self, limits: Limits, *, on_event: Callable[[Event], None] | None = None) -> Completion | None:
        """Let a cell that was left running go on; all else as in ``execute``."""
        self._interrupt_due = False
        return await self._go_on(limits, None, on_event)

    def pause(self) -> None:
        """Leave the cell running that ``execute`` or ``resume`` waits for."""
        if self._run is not None:
            self._run.wake()

    async def _go_on(self, limits: Limits, cell: Execute | None, on_event: Callable[[Event], None] | None) -> Completion | None:
        run = self._run
        assert run is not None
        run.woken = asyncio.get_running_loop().create_future()
        watchdog = self._watchdog = Watchdog(
            self._root, limits, on_given_up=lambda: self._resolve(None), on_interrupted=lambda: self.on_interrupted()
        )
        try:
            await watchdog.start()
            if cell is not None:
                run.worker.execute(cell, on_event)
            else:
                run.worker.attach(on_event)
            if self._interrupt_due:
                watchdog.interrupt()
            if not run.has_ended:
                await run.woken
            if not run.has_ended:
                run.worker.end_events()
                return None
        except LinkClosedError:
            run.end(None)
        except BaseException:
            self._run = None
            raise
        finally:
            self._watchdog = None
            await watchdog.stop()
        self._run = None
        return await self._complete(run, run.finished, limits, expired=watchdog.expired)

    async def _complete(self, run: _Run, finished: Finished | None, limits: Limits, *, expired: bool) -> Completion:
        worker, dead = run.worker, run.dead
        if finished is not None:
            exit_code = finished.exit_code
            outcome = Outcome.OK if exit_code == 0 else Outcome.ERROR
        else:
            _, status = await self._replace_worker()
            exit_code = _exit_code(status)
            outcome = Outcome.MEMORY if exit_code == _SIGKILLED and oom.has_struck() else Outcome.KILLED
        if expired:
            outcome, exit_code = Outcome.TIMEOUT, TIMEOUT_EXIT_CODE
        state_lost = dead is not None or finished is None
        overrun, self._overrun = self._overrun, ""
        note = _explain(outcome, exit_code, limits, state_lost=state_lost, overrun=overrun)
        stdout, stderr = ("", note) if worker.end_events() else worker.take_output(note)
        if dead is not None:
            last_stdout, last_stderr = dead.take_output()
            stdout = cut_middle(last_stdout + stdout, self._max_output_chars)
            stderr = cut_middle(last_stderr + stderr, self._max_output_chars)
            dead.close()
        if finished is None:
            worker.close()
        return Completion(
            outcome=outcome,
            exit_code=exit_code,
            state_lost=state_lost,
            stdout=stdout,
            stderr=stderr,
            note=note,
            raised=finished.raised if finished is not None else None,
        )

    def take_output(self) -> tuple[str, str]:
        """Return stdout and stderr since the last step: of a cell that is left running, or of what cells have left behind."""
        assert self._worker is not None
        return self._worker.take_output()

    def interrupt(self) -> None:
        """Interrupt the cell that is running, if one is, as Ctrl-C does; one that waits for a new worker, as it begins."""
        self._interrupt_due = True
        if self._watchdog is not None:
            self._watchdog.interrupt()

    def overrun(self, what: str) -> None:
        """Kill every process of the session, now, and tell the next observation why.

        Args:
            what: What the session has used up.
        """
        self._overrun = self._overrun or what
        with contextlib.suppress(LinkClosedError):
            self._root.send(Kill())
            self._root.expect()
        self._resolve(None)

    async def kill(self) -> None:
        """Kill every process of the session. The unit wants ``recycle`` before it is used again.

        Raises:
            LinkClosedError: The root died.
        """
        answer = await self._ask_root(Kill())
        assert isinstance(answer, Killed)
        self._is_killed = True

    async def recycle(self) -> None:
        """Kill everything, empty and rename the workspace, and fork a new worker.

        Raises:
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: The root died.
            OSError: The workspace cannot be renamed.
        """
        self._configuration = None
        self._run = None
        self._overrun = ""
        self.on_interrupted = _nothing
        # Whoever had it knows its name: the next one gets another, once nobody is left to see which.
        if not self._is_killed:
            await self.kill()
        self._is_killed = False
        self.workspace = self.workspace.rename(_random_name(self.workspace.parent))
        used, _ = await self._replace_worker()
        # Not by the root, whose memory the next worker gets a copy of: no file's name is to stay in it.
        directory = str(self.workspace)
        if workspace.remove_if_bare(directory):
            # What is left to do takes less than to have a thread do it.
            workspace.empty(directory)
        else:
            await asyncio.to_thread(workspace.empty, directory)
        if used is not None:
            used.close()

    def close(self) -> None:
        """End the unit: the root kills everything as its link closes. The directory goes with ``remove_workspace``."""
        self._root.close()
        if self._worker is not None:
            self._worker.close()

    def remove_workspace(self) -> None:
        """Delete the directory; for after ``close``, off the event loop."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            workspace.clear(self.workspace)
            self.workspace.rmdir()

    async def _replace_worker(self) -> tuple[WorkerEnd | None, int | None]:
        """Have the root kill all that runs and fork a new worker; returns the old one, to be closed, and its wait status."""
        self.being_replaced = True
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        new = WorkerEnd(ours, out_read, err_read, on_finished=self._resolve)
        try:
            request = ForkWorker(str(self.workspace))
            answer = await self._ask_root(request, (theirs.fileno(), out_write, err_write))
            if isinstance(answer, Failed):
                raise ForkError(answer.reason)
            assert isinstance(answer, WorkerForked)
        except BaseException:
            new.close()
            raise
        finally:
            self.being_replaced = False
            theirs.close()
            os.close(out_write)
            os.close(err_write)
        new.pid = answer.pid
        oom.rank_worker(answer.pid)
        old, self._worker = self._worker, new
        if self._configuration is not None:
            self._repair_workspace()
            new.configure(self._configuration, self._max_output_chars)
        return old, answer.previous_status

    def _repair_workspace(self) -> None:
        try:
            workspace.repair(str(self.workspace))
        except OSError as error:
            message = f"the workspace cannot be used: {error}"
            raise ForkError(message) from error

    async def _ask_root(self, request: ToProcess, descriptors: tuple[int, ...] = ()) -> FromProcess:
        return await self._root.call(request, descriptors, within=_ROOT_ANSWERS_WITHIN)

    def _on_root_message(self, message: FromProcess) -> None:
        # Noticed by its parent, for children that the worker forked may still hold its channel open.
        if isinstance(message, WorkerExited) and self._worker is not None:
            self._worker.gone = True
            self._resolve(None)

    def _on_root_closed(self) -> None:
        self._broken = True
        self._resolve(None)

    def _resolve(self, result: Finished | None) -> None:
        if self._run is not None:
            self._run.end(result)


@dataclass
class _Run:
    """A cell that runs.

    Attributes:
        worker: What runs it.
        dead: The worker before, which had died since the last step.
        has_ended: Whether it has finished, or its worker has died or is given up.
        finished: How it has finished.
        woken: What whoever waits for it waits for.
    """

    worker: WorkerEnd
    dead: WorkerEnd | None
    has_ended: bool = False
    finished: Finished | None = None
    woken: asyncio.Future[None] | None = None

    def end(self, finished: Finished | None) -> None:
        if not self.has_ended:
            self.has_ended, self.finished = True, finished
            self.wake()

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


def _nothing() -> None:
    pass


def _random_name(base: Path) -> Path:
    """Return a path that sessions cannot guess: Landlock does not keep them from changing the mode of what they can name."""
    return base / secrets.token_hex(16)


def _explain(outcome: Outcome, exit_code: int, limits: Limits, *, state_lost: bool, overrun: str) -> str:
    """Say, in a line for stderr, why a step was cut short and what became of the namespace."""
    kept = "variables are lost, files are kept" if state_lost else "variables are kept"
    match outcome:
        case Outcome.TIMEOUT:
            budget = f" (CPU budget: {limits.cpu:g} s)" if limits.cpu is not None else ""
            return f"[timed out after {limits.wall:g} s{budget}; {kept}]\n"
        case Outcome.MEMORY:
            return f"[killed: out of memory; {kept}]\n"
        case _ if overrun:
            return f"[killed: {overrun}; {kept}]\n"
        case Outcome.KILLED:
            return f"[the interpreter died with exit code {exit_code}; {kept}]\n"
        case _ if state_lost:
            return f"[the interpreter had died since the last step; {kept}]\n"
    return ""


def _exit_code(status: int | None) -> int:
    """Return the exit code of a shell for a wait status: n of ``exit(n)``, 128 + the signal."""
    if status is None:
        return _SIGKILLED
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
