"""Runs of one test each, and how they ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coding_gym_server.protocol.grading import CaseOutcome, GradingLimits
from coding_gym_server.server.grading.faithful.canary_pool import GuardedTest

__all__ = ["ProcessRun", "RunOne"]


@dataclass
class ProcessRun:
    """How a run of a test ended.

    Attributes:
        outcome: Outcome of the test; of a skipped one, ``passed``.
        is_loaded: Whether the submission was loaded, so that the test could begin.
        is_skipped: Whether the test was skipped.
        message: Why the submission was not loaded.
        load_seconds: Wall-clock time until it was loaded.
        load_cpu_seconds: CPU time until it was loaded; 0 if that took little time.
        seconds: Wall-clock time of the whole run.
        cpu_seconds: CPU time of the whole run.
    """

    outcome: CaseOutcome = CaseOutcome.KILLED
    is_loaded: bool = False
    is_skipped: bool = False
    message: str = ""
    load_seconds: float = 0.0
    load_cpu_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


RunOne = Callable[[str, GuardedTest, str, GradingLimits], Awaitable[ProcessRun]]
"""Runs code with a test, whose module has the given source, within limits."""
