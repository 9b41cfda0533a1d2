"""A booth: a place where one submission at a time is graded, by an examiner that stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import stat
import time
from pathlib import Path

import msgspec

from coding_gym_server.grading.examiner import Examine, Examined, examined_messages
from coding_gym_server.grading.exchange import RunProgram
from coding_gym_server.grading.messages import (
    Asserts,
    CaseOutcome,
    CaseResult,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from coding_gym_server.grading.programs import prints_the_same
from coding_gym_server.grading.run import Run, Watch
from coding_gym_server.interpreter.files import write_files
from coding_gym_server.isolation import oom
from coding_gym_server.workers import workspace
from coding_gym_server.workers.capture import OutputCapture, cut_middle
from coding_gym_server.workers.channel import HEADER
from coding_gym_server.workers.link import Link, LinkClosedError
from coding_gym_server.workers.messages import (
    SUBMISSION,
    CpuTime,
    CpuTimeUsed,
    End,
    Ended,
    Failed,
    ForkExaminer,
    ForkRoot,
    ForkWorker,
    FromProcess,
    Kill,
    WorkerExited,
    WorkerForked,
)
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Booth", "not_run"]

_ANSWERS_WITHIN = 10.0
_MAX_ACCOUNT_BYTES = 64 << 20
_ROOM_CHARS = 4096
"""What a program may print beyond what it should before the middle of it is dropped."""

_DIRECTORIES = (workspace.WORK, workspace.HOME, workspace.TEMPORARY)
_END_OF = {
    CaseOutcome.TIMEOUT: VerdictOutcome.TIMEOUT,
    CaseOutcome.MEMORY: VerdictOutcome.MEMORY,
    CaseOutcome.KILLED: VerdictOutcome.KILLED,
}


class _Unasked(msgspec.Struct):
    """What an examiner never sends."""


class Booth:
    """A directory, the root of the submissions' processes, and an examiner. Made by ``Booth.open``.

    Args:
        directory: The workspace of its submissions.
        zygote: Forks examiners, with the modules that tests import.
        nursery: Forks roots, with little in their memory.

    Attributes:
        root_pid: The root, above all processes of the submission.
        being_replaced: Whether the submission's processes are being exchanged for the next one's.
    """

    def __init__(self, directory: Path, *, zygote: ZygoteProcess, nursery: ZygoteProcess) -> None:
        self._directory = directory
        self._zygote = zygote
        self._nursery = nursery
        self.root_pid = 0
        self.being_replaced = False
        self._root: Link[FromProcess] | None = None
        self._examiner: Link[Examined] | None = None
        self._examiner_pid = 0
        self._ended: asyncio.Future[int] | None = None
        self._overrun = ""

    @classmethod
    async def open(cls, base: Path, *, zygote: ZygoteProcess, nursery: ZygoteProcess) -> Booth:
        """Make a booth in a new directory below ``base``.

        Raises:
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: A zygote died.
        """
        booth = cls(base / secrets.token_hex(16), zygote=zygote, nursery=nursery)
        booth._directory.mkdir(mode=0o700)
        try:
            await booth._start_root()
            await booth._start_examiner()
        except BaseException:
            booth.close()
            asyncio.get_running_loop().run_in_executor(None, booth.remove_directory)
            raise
        return booth

    @property
    def is_alive(self) -> bool:
        """Whether neither the root nor the examiner is known to have died."""
        return self._root is not None and self._examiner is not None

    async def grade(self, submission: Submission) -> Graded:
        """Grade a submission; whatever it does is in the answer.

        Raises:
            FilesError: One of its files cannot be written.
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: The root, or the examiner, died.
            TimeoutError: The root does not answer.
        """
        began = time.perf_counter()
        oom.has_struck()
        self._overrun = ""
        if isinstance(submission.tests, Programs):
            graded = await self._run_programs(submission, submission.tests)
        else:
            graded = await self._examine(submission, submission.tests)
        graded.seconds = time.perf_counter() - began
        return graded

    def overrun(self, what: str) -> None:
        """Kill every process of the submission, now.

        Args:
            what: What it has used up.
        """
        self._overrun = what
        self._kill()

    def close(self) -> None:
        """End the booth; the directory goes with ``remove_directory``."""
        if self._root is not None:
            self._root.close()
            self._root = None
        self._end_examiner()

    def remove_directory(self) -> None:
        """Delete the directory; for after ``close``, off the event loop."""
        with contextlib.suppress(OSError):
            workspace.clear(self._directory)
            self._directory.rmdir()

    async def _examine(self, submission: Submission, tests: Asserts | UnitTests) -> Graded:
        run = await self._fork(submission, submission.limits.max_output_chars)
        if self._examiner is None:
            raise LinkClosedError
        request = Examine(directory=str(self._directory), code=submission.code, entry_point=submission.entry_point, tests=tests)
        with run, run.connection:
            watch = self._watch(submission.limits, run)
            try:
                self._examiner.send(request, (run.connection.fileno(),))
                examined = await watch.over(self._examiner.expect())
            finally:
                watch.stop()
            cpu_seconds = await self._end(run)
            if examined is None:
                # It is stuck in what the submission gave it, or in its own tests.
                self._end_examiner()
                await self._start_examiner()
            return self._verdict(submission, examined, run, expired=watch.expired, cpu_seconds=cpu_seconds)

    def _verdict(
        self, submission: Submission, examined: Examined | None, run: Run, *, expired: bool, cpu_seconds: float
    ) -> Graded:
        if examined is None:
            examined = Examined(is_loaded=True, is_lost=True, cases=not_run(submission))
        end = None
        if examined.is_lost:
            end = CaseOutcome.TIMEOUT if expired else CaseOutcome.MEMORY if oom.has_struck() else CaseOutcome.KILLED
        cases = list(examined.cases)
        if end is not None:
            cases = [
                msgspec.structs.replace(case, outcome=end) if case.outcome is CaseOutcome.KILLED else case for case in cases
            ]
        if not examined.is_loaded:
            cases = not_run(submission)
        if cases and all(case.outcome is CaseOutcome.PASSED for case in cases):
            outcome = VerdictOutcome.PASSED
        elif end is not None:
            outcome = _END_OF[end]
        else:
            outcome = VerdictOutcome.FAILED if examined.is_loaded else VerdictOutcome.ERROR
        stdout, stderr = run.take_output()
        return Graded(
            outcome=outcome,
            cases=tuple(cases),
            message=self._overrun or examined.message,
            stdout=stdout,
            stderr=stderr,
            load_seconds=examined.load_seconds,
            cpu_seconds=cpu_seconds,
        )

    async def _run_programs(self, submission: Submission, tests: Programs) -> Graded:
        graded = Graded(outcome=VerdictOutcome.PASSED)
        cases: list[CaseResult] = []
        for number, case in enumerate(tests.cases):
            result, stdout, stderr, cpu_seconds = await self._run_program(str(number), submission, case, tests.tolerance)
            cases.append(result)
            graded.cpu_seconds += cpu_seconds
            if result.outcome is not CaseOutcome.PASSED and graded.outcome is VerdictOutcome.PASSED:
                graded.outcome = _END_OF.get(result.outcome, VerdictOutcome.FAILED)
                graded.stdout, graded.stderr = stdout, stderr
            if result.outcome is CaseOutcome.TIMEOUT:
                break
        if cases and all(case.outcome is CaseOutcome.ERROR for case in cases):
            graded.outcome = VerdictOutcome.ERROR
            graded.message = cases[0].message
        graded.cases = (*cases, *not_run(submission)[len(cases) :])
        return graded

    async def _run_program(
        self, name: str, submission: Submission, case: ProgramCase, tolerance: float | None
    ) -> tuple[CaseResult, str, str, float]:
        """Run a program once; returns what became of it, what it printed, and the CPU time that it used."""
        began = time.perf_counter()
        room = max(len(case.stdout) + _ROOM_CHARS, submission.limits.max_output_chars)
        run = await self._fork(submission, room)
        request = msgspec.msgpack.encode(RunProgram(submission.code, case.stdin))
        ended = self._ended = asyncio.get_running_loop().create_future()
        with run, run.connection:
            watch = self._watch(submission.limits, run)
            sending = asyncio.ensure_future(_send(run.connection, HEADER.pack(len(request)) + request))
            try:
                status = await watch.over(ended)
            finally:
                watch.stop()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            cpu_seconds = await self._end(run)
            stdout, stderr = run.take_output()
        exit_code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
        outcome, message = self._judge(exit_code, stdout, stderr, case, tolerance, expired=watch.expired)
        limit = submission.limits.max_output_chars
        result = CaseResult(name=name, outcome=outcome, message=message, seconds=time.perf_counter() - began)
        return result, cut_middle(stdout, limit), cut_middle(stderr, limit), cpu_seconds

    def _judge(
        self, exit_code: int, stdout: str, stderr: str, case: ProgramCase, tolerance: float | None, *, expired: bool
    ) -> tuple[CaseOutcome, str]:
        if expired:
            return CaseOutcome.TIMEOUT, "it ran out of time"
        if exit_code < 0:
            killed = CaseOutcome.MEMORY if exit_code == -signal.SIGKILL and oom.has_struck() else CaseOutcome.KILLED
            return killed, self._overrun or f"signal {-exit_code} ended it"
        if exit_code > 0:
            last = stderr.rstrip().rpartition("\n")[2]
            return CaseOutcome.ERROR, f"exit code {exit_code}: {last}" if last else f"exit code {exit_code}"
        if not prints_the_same(stdout, case.stdout, tolerance=tolerance):
            return CaseOutcome.FAILED, "it printed something else"
        return CaseOutcome.PASSED, ""

    async def _fork(self, submission: Submission, max_output_chars: int) -> Run:
        """Fork a process for a submission, in a workspace that has its files and nothing else."""
        if not _is_clean(self._directory):
            await asyncio.to_thread(workspace.empty, str(self._directory))
        if submission.files:
            await asyncio.to_thread(write_files, self._directory / workspace.WORK, submission.files)
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        run = Run(
            ours,
            OutputCapture(out_read, max_chars=max_output_chars),
            OutputCapture(err_read, max_chars=submission.limits.max_output_chars),
        )
        self.being_replaced = True
        try:
            descriptors = (theirs.fileno(), out_write, err_write)
            answer = await self._ask_root(ForkWorker(str(self._directory)), descriptors)
            if isinstance(answer, Failed):
                raise ForkError(answer.reason)
            assert isinstance(answer, WorkerForked)
        except BaseException:
            run.close()
            ours.close()
            raise
        finally:
            self.being_replaced = False
            theirs.close()
            os.close(out_write)
            os.close(err_write)
        run.cpu_before = answer.cpu_seconds
        oom.rank_worker(answer.pid)
        return run

    async def _end(self, run: Run) -> float:
        """Kill what still runs; returns the CPU time that it has used, in seconds."""
        answer = await self._ask_root(End())
        assert isinstance(answer, Ended)
        return answer.cpu_seconds - run.cpu_before

    def _watch(self, limits: GradingLimits, run: Run) -> Watch:
        async def cpu_time() -> float:
            return await self._cpu_time() - run.cpu_before

        return Watch(limits, kill=self._kill, cpu_time=cpu_time)

    async def _cpu_time(self) -> float:
        answer = await self._ask_root(CpuTime())
        assert isinstance(answer, CpuTimeUsed)
        return answer.seconds

    async def _ask_root(self, request: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> FromProcess:
        if self._root is None:
            raise LinkClosedError
        return await self._root.call(request, descriptors, within=_ANSWERS_WITHIN)

    def _kill(self) -> None:
        if self._root is not None:
            with contextlib.suppress(LinkClosedError):
                self._root.send(Kill())
                self._root.expect()

    async def _start_root(self) -> None:
        ours, theirs = socket.socketpair()
        self._root = Link(ours, on_message=self._on_root_message, on_closed=self._on_root_closed)
        with theirs:
            request = ForkRoot(str(self._directory), SUBMISSION)
            self.root_pid = await self._nursery.fork_root(request, theirs)
        workspace.repair(str(self._directory))

    async def _start_examiner(self) -> None:
        ours, theirs = socket.socketpair()
        self._examiner = Link(
            ours,
            decoder=examined_messages,
            unasked=_Unasked,
            max_bytes=_MAX_ACCOUNT_BYTES,
            on_closed=self._on_examiner_closed,
        )
        with theirs:
            self._examiner_pid = await self._zygote.fork_examiner(ForkExaminer(str(self._directory)), theirs)

    def _end_examiner(self) -> None:
        examiner, self._examiner = self._examiner, None
        if examiner is not None:
            examiner.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._examiner_pid, signal.SIGKILL)

    def _on_root_message(self, message: FromProcess) -> None:
        if isinstance(message, WorkerExited) and self._ended is not None and not self._ended.done():
            self._ended.set_result(message.status)

    def _on_root_closed(self) -> None:
        self._root = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(LinkClosedError())

    def _on_examiner_closed(self) -> None:
        self._examiner = None


async def _send(connection: socket.socket, data: bytes) -> None:
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(connection, data)


def not_run(submission: Submission) -> list[CaseResult]:
    """Return the results of tests that none of was run."""
    count = len(submission.tests.cases) if isinstance(submission.tests, Asserts | Programs) else 1
    return [CaseResult(name=str(number), outcome=CaseOutcome.NOT_RUN) for number in range(count)]


def _is_clean(directory: Path) -> bool:
    """Say whether a workspace is as it was in the beginning."""
    names: set[str] = set()
    try:
        for entry in os.scandir(directory):
            names.add(entry.name)
            status = entry.stat(follow_symlinks=False)
            if status.st_mode != stat.S_IFDIR | 0o700 or _has_entries(entry.path):
                return False
    except OSError:
        # Its permissions have been taken away.
        return False
    return names == set(_DIRECTORIES)


def _has_entries(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(True for _ in entries)
