"""Tests of programs: runs a program on each input, and decides whether its output is right."""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.languages import PYTHON, Language
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    CaseResult,
    Checker,
    Graded,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.program_messages import RunProgram
from coding_gym_server.server.grading.agreement import ENDS
from coding_gym_server.server.grading.builds import Build, Builds
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.grading_slots import StartDeadline
from coding_gym_server.server.grading.language_programs import (
    build_of,
    compilation_of,
    compiler_message,
    language_of,
    program_of,
)
from coding_gym_server.server.grading.not_run import not_run
from coding_gym_server.server.grading.output_match import is_same_output
from coding_gym_server.server.grading.program_run import Program, ProgramRun, program_file

__all__ = ["ProgramTests"]

_MAX_COMPILED_BYTES = 32 << 20
"""Maximum total size of the compiled Python programs of one grading."""

_EXTRA_OUTPUT_CHARS = 4096
"""Number of characters that a program may print beyond the expected output before the middle is dropped."""

_CHECKED_OUTPUT_CHARS = 4 << 20
"""The same for a checker, which may accept other outputs than the expected one."""

_INPUT, _OUTPUT, _ANSWER = "input.txt", "output.txt", "answer.txt"
_ACCEPTED, _REFUSED, _FAILED, _POINTS = 0, (1, 2, 8), 3, 7
"""Exit codes of checkers; see testlib.h: OK; WA, PE and UNEXPECTED_EOF; FAIL; POINTS."""

_MAX_MESSAGE_CHARS = 2000


class _CompilationError(Exception):
    """A program cannot be compiled."""


class _CheckerError(Exception):
    """A checker has not decided."""


class _Judged(NamedTuple):
    """What the output of a program is worth.

    Attributes:
        outcome: Whether it is right.
        message: Why it is not.
        score: Part of the test that passed, if it has parts.
    """

    outcome: CaseOutcome
    message: str = ""
    score: float | None = None


class ProgramTests:
    """Runs the cases of ``Programs``, one after the other, and their checker.

    Nothing of a submission is left when its checker runs, and nothing of the checker when the next case runs: each is the only
    program of the worker, with its files only.

    Args:
        execute: Runs a program once.
        builds: Programs in other languages than Python that have been compiled before.
    """

    def __init__(
        self, execute: Callable[[Program, CompiledPrograms, StartDeadline], Awaitable[ProgramRun]], builds: Builds
    ) -> None:
        self._run = execute
        self._builds = builds
        self._compiled = CompiledPrograms(max_bytes=_MAX_COMPILED_BYTES)

    async def grade(self, submission: Submission, tests: Programs) -> Graded:
        """Run the cases, up to the first one that exceeds a time limit; errors of the submission are part of the result.

        Raises:
            LanguageMissingError: If this sandbox lacks what a language needs.
            FilesError: If a file cannot be written.
            NotStartedError: If a program was not started.
        """
        graded = Graded(outcome=VerdictOutcome.PASSED)
        limit = submission.limits.max_output_chars
        cases: list[CaseResult] = []
        try:
            program = await self._program(tests.language, submission, tests.random_seed)
        except _CompilationError as error:
            return Graded(outcome=VerdictOutcome.ERROR, message=str(error), cases=tuple(not_run(submission)))
        for number, case in enumerate(tests.cases):
            extra = _EXTRA_OUTPUT_CHARS if tests.checker is None else _CHECKED_OUTPUT_CHARS
            request = msgspec.structs.replace(program.request, stdin=case.stdin)
            run = await self._execute(replace(program, request=request, max_stdout_chars=max(len(case.stdout) + extra, limit)))
            graded.cpu_seconds += run.cpu_seconds
            try:
                judged = _end_of(run) or await self._judge(run.stdout, case, tests)
            except _CheckerError as error:
                message = f"the checker did not decide on test {number}: {error}"
                return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=message, checker_failed=True)
            result = CaseResult(
                name=str(number), outcome=judged.outcome, message=judged.message, seconds=run.seconds, score=judged.score
            )
            cases.append(result)
            if result.outcome is not CaseOutcome.PASSED and graded.outcome is VerdictOutcome.PASSED:
                graded.outcome = VerdictOutcome(result.outcome.value) if result.outcome in ENDS else VerdictOutcome.FAILED
                graded.stdout = truncate_middle(run.stdout, limit)
                graded.stderr = run.stderr
            if result.outcome is CaseOutcome.TIMEOUT:
                break
        if cases and all(case.outcome is CaseOutcome.ERROR for case in cases):
            graded.outcome = VerdictOutcome.ERROR
            graded.message = cases[0].message
        graded.cases = (*cases, *not_run(submission)[len(cases) :])
        return graded

    async def _execute(self, program: Program) -> ProgramRun:
        return await self._run(program, self._compiled, StartDeadline())

    async def _program(self, name: str, submission: Submission, random_seed: int | None, *arguments: str) -> Program:
        """Return the run of a program without its input.

        Raises:
            _CompilationError: If it cannot be compiled.
        """
        limit = submission.limits.max_output_chars
        if name == PYTHON:
            file = program_file(submission.files)
            return Program(
                request=RunProgram(submission.code, "", file=file, random_seed=random_seed, arguments=arguments),
                limits=submission.limits,
                files=submission.files,
                max_stdout_chars=limit,
                max_stderr_chars=limit,
            )
        language = language_of(name, submission.code)
        build = await self._build(language, submission) if language.compile else None
        if build is not None and not build.product:
            raise _CompilationError(compiler_message(language, build.run))
        return program_of(language, build, submission, *arguments)

    async def _build(self, language: Language, submission: Submission) -> Build:
        """Compile a program, unless it has been compiled before."""
        compilation = compilation_of(language, submission.code, submission.files)

        async def make() -> Build:
            return build_of(language, await self._execute(compilation))

        return await self._builds.get(language, compilation.files, make)

    async def _judge(self, printed: str, case: ProgramCase, tests: Programs) -> _Judged:
        """Decide whether an output is right.

        Raises:
            _CheckerError: If the checker does not.
        """
        if tests.checker is not None:
            return await self._check(tests.checker, printed, case)
        if is_same_output(printed, case.stdout, compare=tests.compare, tolerance=tests.tolerance):
            return _Judged(CaseOutcome.PASSED)
        return _Judged(CaseOutcome.FAILED, "its output differs from the expected output")

    async def _check(self, checker: Checker, printed: str, case: ProgramCase) -> _Judged:
        submission = Submission(code=checker.code, tests=Programs(cases=()), files=checker.files, limits=checker.limits)
        try:
            program = await self._program(checker.language, submission, 0, _INPUT, _OUTPUT, _ANSWER)
        except _CompilationError as error:
            raise _CheckerError(error) from error
        request = program.request
        if isinstance(request, RunProgram):
            # Python's own exit code after an exception would be that for a wrong output.
            request = msgspec.structs.replace(request, error_code=_FAILED)
        files = {_INPUT: case.stdin, _OUTPUT: printed, _ANSWER: case.stdout}
        run = await self._execute(replace(program, request=request, files={**program.files, **files}))
        message = (run.stderr or run.stdout).strip()[:_MAX_MESSAGE_CHARS]
        if run.exit_code == _ACCEPTED and not run.expired:
            return _Judged(CaseOutcome.PASSED)
        if run.exit_code in _REFUSED and not run.expired:
            return _Judged(CaseOutcome.FAILED, message or "the checker refuses its output")
        points = re.match(r"(?:points )?\s*([0-9]+(?:\.[0-9]+)?)", message) if run.exit_code == _POINTS else None
        if points is not None and not run.expired:
            score = min(float(points[1]) / checker.max_points, 1.0)
            return _Judged(CaseOutcome.PASSED if score == 1.0 else CaseOutcome.FAILED, message, score)
        end = _end_of(run)
        raise _CheckerError(end.message if end is not None else message)


def _end_of(run: ProgramRun) -> _Judged | None:
    """Return what is wrong with how a program has ended; None if it has exited with 0."""
    if run.expired:
        return _Judged(CaseOutcome.TIMEOUT, "it exceeded the time limit")
    if run.exit_code < 0:
        killed = CaseOutcome.MEMORY if run.exit_code == -signal.SIGKILL and oom.has_killed() else CaseOutcome.KILLED
        return _Judged(killed, run.kill_reason or f"signal {-run.exit_code} killed it")
    if run.exit_code > 0:
        last = run.stderr.rstrip().rpartition("\n")[2]
        return _Judged(CaseOutcome.ERROR, f"exit code {run.exit_code}: {last}" if last else f"exit code {run.exit_code}")
    return None
