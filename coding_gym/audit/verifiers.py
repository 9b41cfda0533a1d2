"""Verifiers: this package's grader, functions, and the verifiers of trainers, which plug-ins adapt."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from coding_gym.audit.caller import find_function, main
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Grader, RepositoryTests, Task, Verdict

__all__ = ["FunctionVerifier", "GraderVerifier", "Judgment", "Verifier", "load_verifier"]

Submission = tuple[Task, str]


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """What a verifier says of a submission.

    Attributes:
        score: The reward; None if the verifier failed.
        solved: Whether it is the reward of a solution.
        why: Why a submission did not pass, or how the verifier failed; may be empty.
        used: Time that the submission used as a fraction of its limit, CPU time if that is limited; None if unknown.
    """

    score: float | None
    solved: bool
    why: str = ""
    used: float | None = None


class Verifier(ABC):
    """Judges submissions. Use it as a context manager, or call ``close``."""

    name: str

    @abstractmethod
    def judge(self, submissions: Sequence[Submission]) -> Iterator[Judgment]:
        """Yield a judgment for each submission, in order. Equal ones are judged each on its own."""

    def close(self) -> None:  # noqa: B027 - not all have anything to close
        """End what the verifier has started. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class GraderVerifier(Verifier):
    """Verdicts of a ``Grader``.

    Args:
        grader: The grader.
    """

    def __init__(self, grader: Grader) -> None:
        self.name = "coding_gym"
        self._grader = grader

    def judge(self, submissions: Sequence[Submission]) -> Iterator[Judgment]:
        verdicts = self._grader.grade_many(submissions, regrade=True)
        for (task, _), verdict in zip(submissions, verdicts, strict=True):
            failed = next((case.message for case in verdict.cases if case.message), "")
            why = "" if verdict.solved else f"{verdict.outcome.value}: {verdict.message or verdict.disagreement or failed}"
            yield Judgment(score=verdict.score, solved=verdict.solved, why=why, used=_used(task, verdict))


def _used(task: Task, verdict: Verdict) -> float | None:
    """Return the fraction of its limit that a submission has used: of CPU time, or of time for the tests of a repository."""
    used, limit = verdict.cpu_seconds, task.limits.cpu_timeout
    if isinstance(task.tests, RepositoryTests):
        used, limit = verdict.seconds - verdict.load_seconds, sum(command.timeout for command in task.tests.commands)
    return used / limit if limit else None


class FunctionVerifier(Verifier):
    """A function, which is called in a process of its own for each submission.

    The processes are forked from ones that have imported the function: what one submission changes in its process does not
    matter to others. It is a hole, too, if a submission ends the process: that of a trainer would end.

    Args:
        function: ``MODULE:NAME`` of a function of a task and a submission that returns a number, or whether the submission
            passes; or what another form makes such a function of.
        form: ``python``, or one that a plug-in adds, such as ``trl`` and ``verifiers``.
        solved_from: Reward of a solution, and what exceeds it.
        timeout: Seconds after which a call is ended.

    Raises:
        ConfigurationError: If it cannot be imported.
    """

    def __init__(self, function: str, *, form: str = "python", solved_from: float = 1.0, timeout: float = 10.0) -> None:
        self.name = f"{form}:{function}"
        self._solved_from = solved_from
        find_function(form, function)
        start = f"from {main.__module__} import main; main()"
        self._command = [sys.executable, "-c", start, form, function, str(timeout)]
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._count = 0

    def judge(self, submissions: Sequence[Submission]) -> Iterator[Judgment]:
        most = os.cpu_count() or 1
        while self._count < min(most, len(submissions)):
            pipe = subprocess.PIPE
            self._idle.put(subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True))
            self._count += 1
        with ThreadPoolExecutor(most) as threads:
            yield from threads.map(self._judge, submissions)

    def close(self) -> None:
        for _ in range(self._count):
            with self._idle.get() as process:
                process.kill()
        self._count = 0

    def _judge(self, submission: Submission) -> Judgment:
        task, code = submission
        process = self._idle.get()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([task.to_json(), code]) + "\n")
            process.stdin.flush()
            reward, problem = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            reward, problem = None, "the process that calls the verifier has ended"
        finally:
            self._idle.put(process)
        return Judgment(score=reward, solved=reward is not None and reward >= self._solved_from, why=problem)


def load_verifier(spec: str, *, solved_from: float = 1.0, timeout: float = 10.0) -> FunctionVerifier:
    """Return the verifier ``FORM:FUNCTION``, such as ``python:MODULE:NAME`` or ``trl:MODULE:NAME``.

    Args:
        spec: The text.
        solved_from: See ``FunctionVerifier``.
        timeout: See ``FunctionVerifier``.

    Raises:
        ConfigurationError: If there is no such form, or the function cannot be imported.
    """
    form, _, function = spec.partition(":")
    if not function:
        message = f"Expected a verifier python:MODULE:NAME, or FORM:NAME of a plug-in, got {spec!r}"
        raise ConfigurationError(message)
    return FunctionVerifier(function, form=form, solved_from=solved_from, timeout=timeout)
