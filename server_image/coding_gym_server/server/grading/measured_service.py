"""``MeasuredGradingService``: grades submissions and runs programs, and counts them."""

from __future__ import annotations

import time
from typing import Any

from coding_gym_server.protocol.grading import Graded, Submission
from coding_gym_server.server.grading.places import OverloadedError, Place, StartDeadline
from coding_gym_server.server.grading.program_run import Program, ProgramRun
from coding_gym_server.server.grading.service import INFRASTRUCTURE_ERRORS, GradingService
from coding_gym_server.server.measurements import Measurements

__all__ = ["MeasuredGradingService"]


class MeasuredGradingService(GradingService):
    """Grading service whose submissions and programs are counted, unless they are invalid.

    Args:
        arguments: Arguments of ``GradingService``.
        measurements: Counts them.
        options: Options of ``GradingService``.
    """

    def __init__(self, *arguments: Any, measurements: Measurements, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._measurements = measurements

    async def run(self, program: Program, *, max_wait: float) -> ProgramRun:
        try:
            return await super().run(program, max_wait=max_wait)
        except OverloadedError:
            self._measurements.refusals["places"] += 1
            raise

    async def _grade(self, submission: Submission, place: Place, deadline: StartDeadline) -> Graded:
        began = time.perf_counter()
        graded = await super()._grade(submission, place, deadline)
        mode = submission.mode
        self._measurements.grades[mode, graded.outcome] += 1
        self._measurements.grade_times[mode].add(time.perf_counter() - began)
        return graded

    async def _run(self, program: Program, place: Place, deadline: StartDeadline) -> ProgramRun:
        began = time.perf_counter()
        try:
            ended = await super()._run(program, place, deadline)
        except INFRASTRUCTURE_ERRORS:
            self._measurements.programs["infrastructure"] += 1
            raise
        self._measurements.programs[ended.outcome] += 1
        self._measurements.program_times.add(time.perf_counter() - began)
        return ended
