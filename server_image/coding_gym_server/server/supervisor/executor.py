"""Executor: a session root with its worker, workspace and output pipes.

An executor outlives episodes: ``recycle`` kills its processes, empties its workspace and forks a new worker.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import (
    CheckWaiting,
    Configure,
    DiskMeasured,
    Execute,
    Failed,
    Finished,
    ForkFileOpener,
    ForkWorker,
    FromProcess,
    Kill,
    Killed,
    MeasureDisk,
    MeasureUsage,
    ToProcess,
    UsageMeasured,
    Waiting,
    WorkerForked,
)
from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT
from coding_gym_server.linux import oom, procfs
from coding_gym_server.protocol import TIMEOUT_EXIT_CODE, Outcome
from coding_gym_server.protocol.processes import ProcessRequest, Usage
from coding_gym_server.server.supervisor.cell_run import SIGKILLED, CellRun, CompletedCell, exit_code_of
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.pending_snapshot import PendingSnapshot
from coding_gym_server.server.supervisor.process_tree import ProcessTree
from coding_gym_server.server.supervisor.processes import Process, ProcessTable
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.worker_handle import DEFAULT_MAX_OUTPUT_CHARS, Event, WorkerHandle
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle, open_connection
from coding_gym_server.server.threads import FileLease, in_thread
from coding_gym_server.workspace.files import Files, Workspace
from coding_gym_server.workspace.layout import PRIVATE
from coding_gym_server.workspace.lent_files import LentWorkspace
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["Executor"]


class Executor:
    """What runs the cells of a session: its worker, workspace and pipes, and the root that forks share.

    Args:
        spec: Its fixed properties.
        user: Id of its session's user, None if it has the server's user and no separate mounts.
        tree: The executors that have the same root.
        slot: Number of its slot in the tree.
        depth: Number of forks between the tree's first executor and this one.

    Attributes:
        directory: The files of its session.
        lease: Permission to work on them in threads during the episode.
        user: Id of its session's user, None if it has the server's user and no separate mounts.
        spec: Its fixed properties.
        tree: The executors that have the same root.
        slot: Number of its slot in the tree.
        depth: Number of forks between the tree's first executor and this one.
        processes: The processes that clients run beside the worker.
        is_recycling: Whether the processes are being replaced by a new worker.
        on_interrupted: Called when an interrupt has been sent to a cell.
        configuration: Configuration of the worker, None before ``configure``.
        max_output_chars: Maximum number of code points of stdout, and of stderr, per step.
        pending_snapshot: The last snapshot, while the worker has not continued.
    """

    def __init__(
        self, spec: ExecutorSpec, user: int | None, tree: ProcessTree, *, slot: int = FIRST_SLOT, depth: int = 0
    ) -> None:
        self.directory: SessionDirectory
        self.lease = FileLease()
        self.user = user
        self.spec = spec
        self.tree = tree
        self.slot = slot
        self.depth = depth
        self.processes = ProcessTable(tree.root, slot)
        self.is_recycling = False
        self.on_interrupted: Callable[[], None] = lambda: None
        self.pending_snapshot = PendingSnapshot(tree, slot)
        tree.members[slot] = self
        self._worker: WorkerHandle | None = None
        self.configuration: Configure | None = None
        self.max_output_chars = DEFAULT_MAX_OUTPUT_CHARS
        self._run: CellRun | None = None
        self._interrupt_due = False
        self._kill_reason = ""
        self._is_killed = False

    @classmethod
    async def start(cls, zygote: ZygoteHandle, spec: ExecutorSpec, system: SessionSystem) -> Executor:
        """Fork a root from the zygote and a worker from the root, in a new directory.

        Args:
            zygote: Forks the root.
            spec: Fixed properties of the executor.
            system: User and files of the session.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted, or the backend fails to load.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
        """
        ours, theirs = socket.socketpair()
        tree = ProcessTree(ours, system)
        executor = cls(spec, system.user, tree)
        try:
            with zygote.explaining():
                with theirs:
                    tree.root_pid = await zygote.fork_root(system.request(spec.backend), theirs)
                executor.directory = tree.directory = await system.enter(tree.root)
                executor.directory.repair()
                await executor._replace_worker()
        except BaseException:
            executor.close()
            system.discard()
            raise
        return executor

    @property
    def is_broken(self) -> bool:
        """Whether the root has died, and all processes with it."""
        return self.tree.is_broken

    @property
    def root_pid(self) -> int:
        """Process id of the common ancestor of its processes, except for orphans of a fork: the root or the worker, or -1."""
        if self.slot == FIRST_SLOT:
            return self.tree.root_pid
        return -1 if self._worker is None else self._worker.pid

    @property
    def is_alive(self) -> bool:
        """Whether neither the root nor the worker is known to have exited."""
        return not self.is_broken and self._worker is not None and not self._worker.has_exited

    def configure(self, configuration: Configure, *, max_output_chars: int) -> None:
        """Configure the worker, which must not have run a cell yet, and any replacement of it, for an episode.

        Args:
            configuration: The worker's configuration.
            max_output_chars: Maximum number of code points of stdout, and of stderr, per step.
        """
        self.configuration, self.max_output_chars = configuration, max_output_chars
        self.worker.configure(configuration, max_output_chars)

    @property
    def is_running(self) -> bool:
        """Whether a cell is running, including one that ``execute`` or ``resume`` left running."""
        return self._run is not None

    @property
    def worker(self) -> WorkerHandle:
        """The worker."""
        assert self._worker is not None
        return self._worker

    def adopt(self, worker: WorkerHandle, configuration: Configure | None, *, max_output_chars: int) -> None:
        """Replace the worker, which has been killed, by one that continues from a state of the past.

        Args:
            worker: The new worker.
            configuration: Its configuration.
            max_output_chars: Maximum number of code points of stdout, and of stderr, per step.
        """
        used, self._worker = self._worker, worker
        self._end_run()
        self.configuration, self.max_output_chars = configuration, max_output_chars
        worker.limit_output(max_output_chars)
        if used is not None:
            used.close()

    async def execute(
        self,
        cell: Execute,
        limits: TimeLimits,
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> CompletedCell | None:
        """Run a cell until it ends, reaches a limit or is paused. No other cell may be running.

        A worker that died in the step, or since the last one, is replaced by a new one in the same workspace.

        Args:
            cell: The cell.
            limits: Time limits.
            on_event: Called with each output and result as it arrives. If None, the outcome contains all output.

        Returns:
            The outcome, or None if the cell was left running.

        Raises:
            ForkError: If the worker died and no new one can be forked.
            ChannelClosedError: If the root died.
        """
        assert self._run is None
        if self.is_broken:
            # Without the root, the exit of the worker would not be reported.
            raise ChannelClosedError
        await self.pending_snapshot.leave()
        dead = None
        if self.worker.has_exited:
            dead, _ = await self._replace_worker()
        self._run = CellRun(self.worker, dead, self.tree.root, self.slot, on_interrupted=lambda: self.on_interrupted())
        return await self._advance(self._run, limits, cell, on_event)

    async def resume(self, limits: TimeLimits, *, on_event: Callable[[Event], None] | None = None) -> CompletedCell | None:
        """Continue a cell that was left running; see ``execute``."""
        assert self._run is not None
        return await self._advance(self._run, limits, None, on_event)

    def pause(self) -> None:
        """Make ``execute`` or ``resume`` return and leave the cell running."""
        if self._run is not None:
            self._run.pause()

    async def _advance(
        self, run: CellRun, limits: TimeLimits, cell: Execute | None, on_event: Callable[[Event], None] | None
    ) -> CompletedCell | None:
        try:
            has_ended = await run.advance(limits, cell, on_event, interrupt=self._interrupt_due)
        except BaseException:
            if self._run is run:
                self._run = None
            raise
        finally:
            self._interrupt_due = False
        if not has_ended:
            return None
        if self._run is not run:
            message = "the episode of the cell has ended"
            raise ChannelClosedError(message)
        self._run = None
        return await self._complete(run, limits)

    async def _complete(self, run: CellRun, limits: TimeLimits) -> CompletedCell:
        if run.finished is not None:
            exit_code = run.finished.exit_code
            outcome = Outcome.OK if exit_code == 0 else Outcome.ERROR
        else:
            _, status = await self._replace_worker()
            exit_code = exit_code_of(status)
            outcome = Outcome.MEMORY if exit_code == SIGKILLED and oom.has_killed() else Outcome.KILLED
        if run.expired:
            outcome, exit_code = Outcome.TIMEOUT, TIMEOUT_EXIT_CODE
        kill_reason, self._kill_reason = self._kill_reason, ""
        return run.result(outcome, exit_code, limits, kill_reason=kill_reason, max_output_chars=self.max_output_chars)

    def abandon(self, reason: str) -> None:
        """End the wait for a running cell, which raises ``ChannelClosedError``, and for processes, because the episode ends.

        Args:
            reason: What the processes report.
        """
        self.processes.expect_end(reason)
        self._end_run()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(None)

    async def start_process(self, request: ProcessRequest) -> Process:
        """Start a process beside the worker, which must have been configured; see ``ProcessTable.start``."""
        assert self.configuration is not None
        layout = self.directory.layout.at(self.configuration.directory)
        display, variables = self.configuration.display, self.configuration.variables
        return await self.processes.start(request, layout, display=display, variables=variables)

    @contextlib.asynccontextmanager
    async def files(self) -> AsyncIterator[Files]:
        """Yield the files of the session for a block: the working directory, or all that root has.

        Raises:
            ForkError: As ``files_of_programs``.
            ChannelClosedError: As ``files_of_programs``.
            TimeoutError: As ``files_of_programs``.
        """
        if self.spec.is_root:
            async with self.files_of_programs() as workspace:
                yield workspace
        else:
            yield Workspace(self.directory.work, home=PRIVATE.home)

    @contextlib.asynccontextmanager
    async def files_of_programs(self) -> AsyncIterator[LentWorkspace]:
        """Yield all files of the session for a block, as its programs see them: a process of the session opens them.

        Raises:
            ForkError: If the process limit, memory or the server's file descriptors are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        ours, theirs = open_connection()
        with contextlib.closing(LentWorkspace(ours)) as workspace:
            with theirs:
                response = await self.call_root(ForkFileOpener(self.slot), (theirs.fileno(),))
            if isinstance(response, Failed):
                raise ForkError(response.reason)
            yield workspace

    async def are_waiting(self, programs: Iterable[int]) -> bool:
        """Return whether programs of the session, given by their process ids, sleep without a timeout."""
        try:
            response = await self.call_root(CheckWaiting([self.tree.pid_inside(program) for program in programs]))
        except (ChannelClosedError, TimeoutError):
            # The step reports it.
            return False
        return isinstance(response, Waiting) and response.are_waiting

    async def measure_disk(self) -> tuple[int, int] | None:
        """Return the bytes and the number of changed files if they lie on a disk; None if not, or the root died.

        Raises:
            TimeoutError: If the root does not respond.
        """
        if not self.spec.is_root:
            return None
        try:
            measured = await self.call_root(MeasureDisk())
        except ChannelClosedError:
            return None
        assert isinstance(measured, DiskMeasured)
        return None if measured.size is None else (measured.size, measured.count)

    async def usage(self) -> Usage:
        """Return the resource usage of the session.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        measured = await self.call_root(MeasureUsage(self.slot))
        assert isinstance(measured, UsageMeasured)
        changed = await self.measure_disk()
        disk = os.statvfs(self.directory.work)
        return Usage(
            cpu_seconds=measured.cpu_seconds,
            memory_bytes=measured.memory_bytes,
            disk_used_bytes=(disk.f_blocks - disk.f_bfree) * disk.f_frsize + (changed[0] if changed else 0),
            disk_bytes=disk.f_blocks * disk.f_frsize,
        )

    def take_output(self) -> tuple[str, str]:
        """Return stdout and stderr since the last step, of a cell left running or of background processes."""
        return self.worker.take_output()

    def interrupt(self) -> None:
        """Interrupt the running cell as Ctrl-C does; one that is about to run, as soon as it starts."""
        self._interrupt_due = True
        if self._run is not None:
            self._run.interrupt()

    def end_loop(self) -> None:
        """Interrupt the running cell, which keeps its windows; once more, whatever its handler of SIGINT does."""
        if self._run is not None:
            self._run.interrupt(is_closing=True)

    def forget_interrupt(self) -> None:
        """Forget an interrupt that came after the cell had ended."""
        self._interrupt_due = False

    def kill_with_reason(self, reason: str, *, limit_exceeded: bool = True) -> None:
        """Kill all processes of the session immediately, and report the reason in the next observation.

        Args:
            reason: Description of the exceeded resource or the request.
            limit_exceeded: Whether it is an exceeded resource.
        """
        self._kill_reason = self._kill_reason or reason
        self.processes.expect_end(f"all processes of the session were killed: {reason}", limit_exceeded=limit_exceeded)
        self.tree.tell_root(Kill(self.slot))
        self.resolve(None)

    async def kill(self) -> None:
        """Kill all processes of the session. The executor must be recycled before it is used again.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        response = await self.call_root(Kill(self.slot))
        assert isinstance(response, Killed)
        self._is_killed = True

    async def recycle(self) -> None:
        """Kill all processes, fork a new worker, and empty the workspace.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
            OSError: If the workspace cannot be emptied.
        """
        self.configuration = None
        self._end_run()
        self._kill_reason = ""
        self.forget_interrupt()
        self.on_interrupted = lambda: None
        if not self._is_killed:
            await self.kill()
        self._is_killed = False
        self.processes.clear()
        await self.end_file_work()
        used, _ = await self._replace_worker()
        # Not in the root, because the next worker inherits its memory, which must not contain names of files.
        if not self.directory.empty_if_bare():
            await in_thread(self.directory.empty)
        if used is not None:
            used.close()

    async def end_file_work(self) -> None:
        """Wait until no thread works on the files any more: they are about to be those of another episode."""
        lease = self.lease
        await lease.end()
        if self.lease is lease:
            self.lease = FileLease()

    async def revive(self) -> None:
        """Repair the directories, and replace the worker if it has exited.

        For an executor that has run no cell, so that nothing is lost.

        While files of other episodes exhaust the memory, the kernel kills workers, the idle ones first.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        # Others that share them may have changed the modes of the directories.
        self._repair_workspace()
        # The root may not have reported it yet.
        if self.worker.has_exited or procfs.has_exited(self.worker.pid):
            dead, _ = await self._replace_worker()
            assert dead is not None
            dead.close()

    def close(self) -> None:
        """Close the channels; the root then kills all processes. The directory remains until it is removed."""
        self.processes.clear()
        if self.slot == FIRST_SLOT:
            self.tree.close()
        if self._worker is not None:
            self._worker.close()

    def take_directory(self) -> SessionDirectory:
        """Return the files of the session, which the executor does not access any more. Call it after ``close``."""
        directory = self.directory
        del self.directory
        return directory

    async def _replace_worker(self) -> tuple[WorkerHandle | None, int | None]:
        """Kill all processes and fork a new worker; return the old one, which the caller closes, and its wait status."""
        self.is_recycling = True
        try:
            with WorkerHandle.open(on_finished=self.resolve) as (new, descriptors):
                self.processes.expect_end("the interpreter was killed, and all processes of the session with it")
                response = await self.call_root(ForkWorker(self.slot), descriptors)
                if isinstance(response, Failed):
                    raise ForkError(response.reason)
                assert isinstance(response, WorkerForked)
        finally:
            self.is_recycling = False
        new.own_pid, new.pid = response.pid, self.tree.pid_outside(response.pid)
        old, self._worker = self._worker, new
        if self.configuration is not None:
            self._repair_workspace()
            new.configure(self.configuration, self.max_output_chars)
        return old, response.previous_status

    def _repair_workspace(self) -> None:
        try:
            self.directory.repair()
        except OSError as error:
            message = f"the workspace is unusable: {error}"
            raise ForkError(message) from error

    async def call_root(self, request: ToProcess, descriptors: tuple[int, ...] = ()) -> FromProcess:
        """Send a request to the root; return its response; see ``ProcessTree.call_root``."""
        return await self.tree.call_root(request, descriptors)

    def on_worker_exited(self) -> None:
        """Called when the worker exits."""
        if self._worker is not None:
            self._worker.has_exited = True
            self.resolve(None)

    def on_root_closed(self) -> None:
        """Called when the root, and all processes with it, have ended."""
        self.processes.clear("the session's root process died, and all processes of the session with it")
        self.resolve(None)

    def resolve(self, result: Finished | None) -> None:
        """End the running cell, if there is one, with the result or, if it has none, with the exit of the worker."""
        if self._run is not None:
            self._run.end(result)
