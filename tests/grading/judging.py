"""Helper for grading over a dedicated connection."""

from __future__ import annotations

import dataclasses
from typing import Any

from coding_gym.client.session import Session
from coding_gym_server.protocol.grading import Asserts, Graded, GradingLimits, Submission, UnitTests

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
