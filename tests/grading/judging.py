"""Helpers for grading over dedicated connections."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from coding_gym.client.session import Session
from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import Asserts, Graded, GradingLimits, Submission, UnitTests

_CONNECTIONS = 4
_ANSWER_WITHIN = 60.0
_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=20.0)


@dataclasses.dataclass
class Judge:
    """Callable that grades submissions over a session."""

    session: Session

    def __call__(self, submission: Submission) -> Graded:
        return self.session.grade(submission, timeout=60.0)

    def asserts(self, code: str, *cases: str, setup: str = "", **options: Any) -> Graded:
        options.setdefault("limits", _LIMITS)
        return self(Submission(code=code, tests=Asserts(setup=setup, cases=cases), **options))

    def unit_tests(self, code: str, source: str, **options: Any) -> Graded:
        options.setdefault("limits", _LIMITS)
        return self(Submission(code=code, tests=UnitTests(source=source), **options))


def grade_all(sandbox: Sandbox, submissions: Sequence[Submission], *, timeout: float = _ANSWER_WITHIN) -> list[Graded]:
    """Grade submissions concurrently over several connections, each of which takes the next one when it is free."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(_CONNECTIONS) as threads:
        free: SimpleQueue[Session] = SimpleQueue()
        for _ in range(_CONNECTIONS):
            free.put(stack.enter_context(contextlib.closing(sandbox.connect())))

        def grade(submission: Submission) -> Graded:
            session = free.get()
            try:
                return session.grade(submission, timeout=timeout)
            finally:
                free.put(session)

        return list(threads.map(grade, submissions))
