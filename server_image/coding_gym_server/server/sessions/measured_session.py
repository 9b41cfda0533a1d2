"""``MeasuredSession``: a session whose resets and steps are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from coding_gym_server.ipc.messages import Execute
from coding_gym_server.protocol import ObservationData, Outcome, ResetOptions, StepAction
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS, ServerSession
from coding_gym_server.server.sessions.step_runner import StepCapture
from coding_gym_server.server.supervisor.watchdog import Limits
from coding_gym_server.server.supervisor.worker_handle import Event

__all__ = ["MeasuredSession"]


class MeasuredSession(ServerSession):
    """Session whose resets and steps are counted, unless they are refused before they begin.

    Args:
        arguments: Arguments of ``ServerSession``.
        measurements: Counts them.
        options: Options of ``ServerSession``.
    """

    def __init__(self, *arguments: Any, measurements: Measurements, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._measurements = measurements

    async def reset(self, options: ResetOptions, *, directory: str | None = None) -> ObservationData:
        began = time.perf_counter()
        try:
            data = await super().reset(options, directory=directory)
        except INFRASTRUCTURE_ERRORS:
            self._measurements.resets[self._options.backend, Outcome.INFRASTRUCTURE] += 1
            raise
        backend = self._options.backend
        self._measurements.resets[backend, Outcome.OK] += 1
        self._measurements.reset_times[backend].add(time.perf_counter() - began)
        return data

    async def step(self, action: StepAction, *, on_event: Callable[[Event], None] | None = None) -> ObservationData:
        began = time.perf_counter()
        data = await super().step(action, on_event=on_event)
        self._measurements.count_step(self._options.backend, data.observation.metadata.outcome, time.perf_counter() - began)
        return data

    async def execute(self, cell: Execute, limits: Limits, *, on_event: Callable[[Event], None] | None = None) -> StepCapture:
        began = time.perf_counter()
        outcome = Outcome.INFRASTRUCTURE
        try:
            captured = await super().execute(cell, limits, on_event=on_event)
            outcome = Outcome.RUNNING if captured.completion is None else captured.completion.outcome
        except INFRASTRUCTURE_ERRORS:
            self._measurements.count_step(self._options.backend, outcome, time.perf_counter() - began)
            raise
        self._measurements.count_step(self._options.backend, outcome, time.perf_counter() - began)
        return captured
