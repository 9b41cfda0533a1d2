"""Checkers and interactors: what they are given, and what their ends mean, by their protocols."""

from __future__ import annotations

import math
import re
import signal
from typing import NamedTuple

from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import CaseOutcome, Checker, CheckerProtocol, ProgramCase
from coding_gym_server.server.grading.program_run import MemoryLimit, ProgramRun

__all__ = ["FAILED", "OUTPUT_FILE", "CheckerError", "Judged", "arguments_of", "decision_of", "end_of", "fetched_of", "files_of"]

OUTPUT_FILE = "output.txt"
"""File of the output of a program, which a testlib interactor writes, and a checker reads."""

FAILED = 3
"""Exit code of a checker that has failed; see testlib.h: FAIL."""

_INPUT, _ANSWER, _FEEDBACK = "input.txt", "answer.txt", "feedback/"
_MESSAGE, _SCORE = f"{_FEEDBACK}judgemessage.txt", f"{_FEEDBACK}score.txt"

_ARGUMENTS = {
    CheckerProtocol.TESTLIB: (_INPUT, OUTPUT_FILE, _ANSWER),
    CheckerProtocol.KATTIS: (_INPUT, _ANSWER, _FEEDBACK),
    CheckerProtocol.PRINTED: (_INPUT, _ANSWER, OUTPUT_FILE),
}

_POINTS = 7
_ACCEPTED = {CheckerProtocol.TESTLIB: (0, _POINTS), CheckerProtocol.KATTIS: (42,), CheckerProtocol.PRINTED: (0,)}
_REFUSED = {CheckerProtocol.TESTLIB: (1, 2, 8), CheckerProtocol.KATTIS: (43,), CheckerProtocol.PRINTED: ()}
"""Exit codes; see testlib.h: OK and POINTS; WA, PE and UNEXPECTED_EOF."""

_NUMBER = re.compile(r"\s*(?:points )?\s*([0-9]+(?:\.[0-9]+)?)")
_TRUTHS = {"true": "1", "false": "0"}

_MAX_MESSAGE_CHARS = 2000


class CheckerError(Exception):
    """A checker or an interactor has not decided."""


class Judged(NamedTuple):
    """What the run of a program is worth.

    Attributes:
        outcome: Whether it is right.
        message: Why it is not.
        score: Part of the test that passed, if it has parts.
    """

    outcome: CaseOutcome
    message: str = ""
    score: float | None = None


def arguments_of(checker: Checker) -> tuple[str, ...]:
    """Return the arguments of a checker or an interactor."""
    return (*_ARGUMENTS[CheckerProtocol(checker.protocol)], *checker.arguments)


def files_of(checker: Checker, case: ProgramCase) -> dict[str, str]:
    """Return the files that a checker or an interactor gets beside its own, but for the output of a program."""
    files = {_INPUT: case.stdin, _ANSWER: case.stdout}
    if checker.protocol == CheckerProtocol.KATTIS:
        files[_MESSAGE] = ""
    return files


def fetched_of(checker: Checker) -> tuple[str, ...]:
    """Return the files that tell about the decision of a checker or an interactor."""
    return (_MESSAGE, _SCORE) if checker.protocol == CheckerProtocol.KATTIS else ()


def decision_of(checker: Checker, run: ProgramRun) -> Judged:
    """Return what a checker or an interactor has decided.

    Args:
        checker: The checker or interactor.
        run: How it has ended, with the files of ``fetched_of``.

    Raises:
        CheckerError: If it has not decided.
    """
    protocol = CheckerProtocol(checker.protocol)
    message = _text(run, _MESSAGE) or (run.stderr or run.stdout).strip()[:_MAX_MESSAGE_CHARS]
    if not run.expired and run.exit_code in _REFUSED[protocol]:
        return Judged(CaseOutcome.FAILED, message or "the checker refuses its output")
    if run.expired or run.exit_code not in _ACCEPTED[protocol]:
        end = end_of(run)
        raise CheckerError(end.message if end is not None else message or "exit code 0")
    if protocol is CheckerProtocol.PRINTED:
        last = run.stdout.rstrip().rpartition("\n")[2].rpartition(" ")[2]
        points = _points(_TRUTHS.get(last.lower(), last))
    elif protocol is CheckerProtocol.KATTIS and _SCORE in run.files:
        points = _points(_text(run, _SCORE))
    elif run.exit_code == _POINTS and protocol is CheckerProtocol.TESTLIB:
        points = _points(message)
    else:
        return Judged(CaseOutcome.PASSED)
    score = min(points / checker.max_points, 1.0)
    return Judged(CaseOutcome.PASSED if score == 1.0 else CaseOutcome.FAILED, message, score)


def end_of(run: ProgramRun, memory: MemoryLimit | None = None) -> Judged | None:
    """Return what is wrong with how a program has ended; None if it has exited with 0.

    Args:
        run: How it has ended.
        memory: Its memory limit.
    """
    if run.is_truncated:
        return Judged(CaseOutcome.OUTPUT, "it exceeded the output limit")
    if run.expired:
        return Judged(CaseOutcome.TIMEOUT, "it exceeded the time limit")
    if memory is not None and memory.is_exceeded(run):
        return Judged(CaseOutcome.MEMORY, "it exceeded the memory limit")
    if run.exit_code < 0:
        killed = CaseOutcome.MEMORY if run.exit_code == -signal.SIGKILL and oom.has_killed() else CaseOutcome.KILLED
        return Judged(killed, run.kill_reason or f"signal {-run.exit_code} killed it")
    if run.exit_code > 0:
        last = run.stderr.rstrip().rpartition("\n")[2]
        return Judged(CaseOutcome.ERROR, f"exit code {run.exit_code}: {last}" if last else f"exit code {run.exit_code}")
    return None


def _points(text: str) -> float:
    found = _NUMBER.match(text)
    if found is None or not math.isfinite(points := float(found[1])):
        message = f"expected points, got {text.strip()!r:.200}"
        raise CheckerError(message)
    return points


def _text(run: ProgramRun, name: str) -> str:
    return run.files.get(name, b"").decode("utf-8", "replace").strip()[:_MAX_MESSAGE_CHARS]
