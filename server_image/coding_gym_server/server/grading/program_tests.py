"""Tests of programs: runs a program on each input, and decides whether its output is right."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.languages import PYTHON, Language
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    CaseResult,
    Checker,
    Graded,
    GradingLimits,
    GradingMode,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.program_messages import RunProgram
from coding_gym_server.server.grading.agreement import ENDS
from coding_gym_server.server.grading.builds import Build, Builds, build_key
from coding_gym_server.server.grading.checkers import (
    FAILED,
    OUTPUT_FILE,
    CheckerError,
    Judged,
    arguments_of,
    decision_of,
    end_of,
    fetched_of,
    files_of,
)
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.grading_slots import StartDeadline
from coding_gym_server.server.grading.group_points import GroupPoints
from coding_gym_server.server.grading.language_programs import (
    build_of,
    compilation_of,
    compiler_message,
    language_of,
    memory_limit_of,
    program_of,
)
from coding_gym_server.server.grading.not_run import not_run
from coding_gym_server.server.grading.output_match import is_same_output
from coding_gym_server.server.grading.program_run import Program, ProgramRun, program_file

__all__ = ["ProgramTests", "Talked"]

_MAX_COMPILED_BYTES = 32 << 20
"""Maximum total size of the compiled Python programs of one grading."""

_EXTRA_OUTPUT_CHARS = 4 << 20
"""Number of characters that a program may print beyond those of the expected output; then, it may be killed."""


class Talked(NamedTuple):
    """How a program and an interactor have ended.

    Attributes:
        run: How the program has ended.
        others_run: How the interactor has ended.
        is_first: Whether the program has ended before the interactor.
    """

    run: ProgramRun
    others_run: ProgramRun
    is_first: bool


_Execute = Callable[[Program, CompiledPrograms, StartDeadline], Awaitable[ProgramRun]]
_Talk = Callable[[Program, Program, CompiledPrograms], Awaitable[Talked]]


class _CompilationError(Exception):
    """A program cannot be compiled."""


class ProgramTests:
    """Runs the cases of ``Programs``, one after the other, with their interactor and their checker.

    Nothing of a submission is left when its checker runs, and nothing of the checker when the next case runs: each is the only
    program of the worker, with its files only. An interactor has another worker.

    Args:
        execute: Runs a program once.
        talk: Runs a program and an interactor, each of which reads what the other one prints.
        builds: Programs in other languages than Python that have been compiled before.
    """

    def __init__(self, execute: _Execute, talk: _Talk, builds: Builds) -> None:
        self._run = execute
        self._talk = talk
        self._builds = builds
        self._compiled = CompiledPrograms(max_bytes=_MAX_COMPILED_BYTES)

    async def grade(self, submission: Submission, tests: Programs) -> Graded:
        """Run the cases; errors of the submission are part of the result.

        Without groups, the first case that exceeds a time limit is the last one.

        Raises:
            LanguageMissingError: If this sandbox lacks what a language needs.
            FilesError: If a file cannot be written.
            NotStartedError: If a program was not started.
        """
        graded = Graded(outcome=VerdictOutcome.PASSED)
        if tests.suffix:
            graded.mode, graded.is_weak = GradingMode.FAITHFUL, True
        limit = submission.limits.max_output_chars
        submission = msgspec.structs.replace(submission, code=tests.program(submission.code))
        cases, left, points = [], not_run(submission), GroupPoints(tests.groups)
        began = time.perf_counter()
        try:
            program = await self._program(tests.language, submission, seed=tests.random_seed)
        except _CompilationError as error:
            return Graded(outcome=VerdictOutcome.ERROR, message=str(error), cases=tuple(left))
        graded.load_seconds = time.perf_counter() - began
        for number, case in enumerate(tests.cases):
            if points.are_lost(number):
                cases.append(left[number])
                continue
            try:
                run, judged = await self._run_case(program, case, tests)
            except CheckerError as error:
                message = f"the checker did not decide on test {number}: {error}"
                return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=message, checker_failed=True)
            graded.cpu_seconds += run.cpu_seconds
            result = CaseResult(
                name=str(number),
                outcome=judged.outcome,
                message=judged.message,
                seconds=run.seconds,
                score=judged.score,
                memory_bytes=run.peak_bytes or None,
            )
            cases.append(result)
            passed = float(result.outcome is CaseOutcome.PASSED)
            points.add(number, passed if result.score is None else result.score)
            if result.outcome is not CaseOutcome.PASSED and graded.outcome is VerdictOutcome.PASSED:
                graded.outcome = VerdictOutcome(result.outcome.value) if result.outcome in ENDS else VerdictOutcome.FAILED
                graded.stdout = truncate_middle(run.stdout, limit)
                graded.stderr = run.stderr
            if result.outcome is CaseOutcome.TIMEOUT and not tests.groups:
                break
        graded.reward = points.share
        if cases and all(case.outcome in (CaseOutcome.ERROR, CaseOutcome.NOT_RUN) for case in cases):
            graded.outcome = VerdictOutcome.ERROR
            graded.message = cases[0].message
        graded.cases = (*cases, *left[len(cases) :])
        return graded

    async def _run_case(self, program: Program, case: ProgramCase, tests: Programs) -> tuple[ProgramRun, Judged]:
        """Run a program on the input of a case; return how it has ended, and what that is worth.

        Raises:
            CheckerError: If the checker or the interactor does not decide.
        """
        if tests.interactor is not None:
            return await self._interact(program, tests.interactor, case, tests.checker)
        limit = max(len(case.stdout) + _EXTRA_OUTPUT_CHARS, program.max_stdout_chars)
        with_input = replace(_with_input(program, tests, case), max_stdout_chars=limit, ends_with_excess=True)
        run = _with_output(await self._execute(with_input), tests)
        judged = end_of(run, program.memory)
        if judged is not None:
            return run, judged
        if tests.output_file and tests.output_file not in run.files:
            message = "\n".join(run.refused) or f"it has not written {tests.output_file}"
            return run, Judged(CaseOutcome.FAILED, message)
        if tests.checker is not None:
            return run, await self._check(tests.checker, run.stdout, case)
        if is_same_output(run.stdout, case.stdout, compare=tests.compare, tolerance=tests.tolerance):
            return run, Judged(CaseOutcome.PASSED)
        return run, Judged(CaseOutcome.FAILED, "its output differs from the expected output")

    async def _execute(self, program: Program) -> ProgramRun:
        return await self._run(program, self._compiled, StartDeadline())

    async def _program(
        self, name: str, source: Submission | Checker, *arguments: str, seed: int | None = 0, error_code: int = 1
    ) -> Program:
        """Return the run of a program without its input.

        Args:
            name: Name of its language.
            source: Has its code, files and limits.
            arguments: Its arguments.
            seed: Seed of Python's ``random``.
            error_code: Exit code after an exception in Python.

        Raises:
            _CompilationError: If it cannot be compiled.
        """
        limit = source.limits.max_output_chars
        if name == PYTHON:
            file = program_file(source.files)
            memory = memory_limit_of(source)
            request = RunProgram(
                source.code,
                "",
                file=file,
                max_memory_bytes=None if memory is None else memory.max_private_bytes,
                random_seed=seed,
                arguments=arguments,
                error_code=error_code,
            )
            return Program(
                request=request,
                limits=source.limits,
                memory=memory,
                files=source.files,
                max_stdout_chars=limit,
                max_stderr_chars=limit,
            )
        language = language_of(name, source.code)
        build = await self._build(language, source) if language.compile else None
        if build is not None and not build.product:
            raise _CompilationError(compiler_message(language, build.run))
        return program_of(language, build, source, *arguments)

    async def _build(self, language: Language, source: Submission | Checker) -> Build:
        """Compile a program, unless it has been compiled before."""
        compilation = compilation_of(language, source.code, source.files)

        async def make() -> Build:
            return build_of(language, await self._execute(compilation))

        return await self._builds.get(build_key(language, compilation.files), make)

    async def _checker_program(self, checker: Checker, case: ProgramCase, **files: str) -> Program:
        """Return the run of a checker or an interactor.

        Raises:
            CheckerError: If it cannot be compiled.
        """
        try:
            # Python's own exit code after an exception would be that for a wrong output.
            program = await self._program(checker.language, checker, *arguments_of(checker), error_code=FAILED)
        except _CompilationError as error:
            raise CheckerError(error) from error
        return replace(
            program, files={**program.files, **files_of(checker, case), **files}, fetch=(OUTPUT_FILE, *fetched_of(checker))
        )

    async def _check(self, checker: Checker, printed: str, case: ProgramCase) -> Judged:
        """Let a checker decide whether an output is right.

        Raises:
            CheckerError: If it does not.
        """
        program = await self._checker_program(checker, case, **{OUTPUT_FILE: printed})
        request = msgspec.structs.replace(program.request, stdin=printed)
        return decision_of(checker, await self._execute(replace(program, request=request)))

    async def _interact(
        self, program: Program, interactor: Checker, case: ProgramCase, checker: Checker | None
    ) -> tuple[ProgramRun, Judged]:
        """Let a program and an interactor talk; return how the program has ended, and what that is worth.

        An interactor that fails once the program has ended, perhaps because there is nothing more to read, does not accept it.

        Raises:
            CheckerError: If the interactor fails before, or the checker of what it has written does not decide.
        """
        other = await self._checker_program(interactor, case)
        limits = other.limits
        # It also waits for the program.
        patient = GradingLimits(
            cpu_timeout=limits.cpu_timeout,
            wall_timeout=limits.wall_timeout + program.limits.wall_timeout,
            max_output_chars=interactor.limits.max_output_chars,
        )
        request = msgspec.structs.replace(program.request, stdin=None)
        others_request = msgspec.structs.replace(other.request, stdin=None)
        run, others_run, is_first = await self._talk(
            replace(program, request=request), replace(other, request=others_request, limits=patient), self._compiled
        )
        end = end_of(run, program.memory)
        try:
            decided = decision_of(interactor, others_run)
        except CheckerError as error:
            if not is_first:
                raise
            return run, end or Judged(CaseOutcome.FAILED, f"it ended before the interactor, which failed: {error}")
        if decided.outcome is CaseOutcome.PASSED or decided.score is not None:
            if end is None and checker is not None:
                written = others_run.files.get(OUTPUT_FILE, b"").decode("utf-8", "replace")
                return run, await self._check(checker, written, case)
            return run, end or decided
        return run, end if end is not None and is_first else decided


def _with_input(program: Program, tests: Programs, case: ProgramCase) -> Program:
    """Return the run of a program on an input, from standard input or a file."""
    fetch = (tests.output_file,) if tests.output_file else ()
    if tests.input_file:
        return replace(program, files={**program.files, tests.input_file: case.stdin}, fetch=fetch)
    return replace(program, request=msgspec.structs.replace(program.request, stdin=case.stdin), fetch=fetch)


def _with_output(run: ProgramRun, tests: Programs) -> ProgramRun:
    """Return a run whose stdout is the file to which the program has written its output, if that is not standard output."""
    if tests.output_file not in run.files:
        return run
    return replace(run, stdout=run.files[tests.output_file].decode("utf-8", "replace"))
