"""What the server counts for its metrics."""

from __future__ import annotations

from collections import Counter, defaultdict

from coding_gym_server.durations import WAIT_BOUNDS, DurationHistogram
from coding_gym_server.protocol import Outcome
from coding_gym_server.protocol.grading import GradingMode, VerdictOutcome

__all__ = ["Measurements"]

_PROGRAM_OUTCOMES = ("ok", "error", "timeout", "killed", "infrastructure")
"""How programs end, see ``ProgramRun.outcome``."""


class Measurements:
    """Numbers and durations of what a server has done since its start. Used in its event loop only.

    Args:
        backend: The default backend, for which numbers begin with 0: a rate can then be computed across the first event.

    Attributes:
        resets: Number of resets by backend and outcome.
        reset_times: Durations of successful resets by backend.
        worker_waits: How long episodes have waited for a worker.
        steps: Number of steps by backend and outcome.
        step_times: Durations of steps by backend.
        grades: Number of submissions by mode and outcome.
        grade_times: Durations of their grading by mode, without the wait for a place.
        disagreements: Number of submissions that passed apart from their tests, and failed together with them.
        programs: Number of programs of ``/run_code`` by outcome.
        program_times: Durations of their runs, without the wait for a place.
        door_connections: Number of connections of sessions to their doors.
        open_door_connections: Number of those that are open.
        refusals: Number of requests that were refused because the server was full, by what was missing.
    """

    def __init__(self, backend: str) -> None:
        self.resets = Counter({(backend, outcome): 0 for outcome in (Outcome.OK, Outcome.INFRASTRUCTURE)})
        self.reset_times = defaultdict(DurationHistogram, {backend: DurationHistogram()})
        self.worker_waits = DurationHistogram(WAIT_BOUNDS)
        self.steps = Counter({(backend, outcome): 0 for outcome in Outcome})
        self.step_times = defaultdict(DurationHistogram, {backend: DurationHistogram()})
        self.grades = Counter({(mode, outcome): 0 for mode in GradingMode for outcome in VerdictOutcome})
        self.grade_times = {mode: DurationHistogram() for mode in GradingMode}
        self.disagreements = 0
        self.programs = Counter(dict.fromkeys(_PROGRAM_OUTCOMES, 0))
        self.program_times = DurationHistogram()
        self.door_connections = self.open_door_connections = 0
        self.refusals = Counter({"sessions": 0, "places": 0})

    def count_step(self, backend: str, outcome: Outcome, seconds: float) -> None:
        """Count a step."""
        self.steps[backend, outcome] += 1
        self.step_times[backend].add(seconds)
