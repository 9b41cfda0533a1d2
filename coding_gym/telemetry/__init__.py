"""Reports of environments and pools to observers, such as that of ``coding-gym watch``."""

from __future__ import annotations

from coding_gym.telemetry.observer import Group, Identity, Observer, SessionObserver, StepResult, observation
from coding_gym.telemetry.pools import ObservedPool, observed_pools, report_pool
from coding_gym.telemetry.reporter import SessionReporter

__all__ = [
    "Group",
    "Identity",
    "ObservedPool",
    "Observer",
    "SessionObserver",
    "SessionReporter",
    "StepResult",
    "observation",
    "observed_pools",
    "report_pool",
]
