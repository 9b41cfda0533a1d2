"""Benchmark of collecting episodes with a scripted policy."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.plan import BenchPlan
from benchmarks.report import Row
from coding_gym.datasets import collect
from coding_gym.sandbox.pool import SandboxPool

__all__ = ["measure_collecting"]

_SESSIONS = 16
_ACTIONS = ("x = 1", "print(x + 1)", "x * 2")
_EPISODES = 1600


def measure_collecting(plan: BenchPlan) -> Iterator[Row]:
    """Measure the collection rate of three-step episodes, in a running sandbox, and including its start and removal."""
    episodes = plan.times(_EPISODES)
    what = f"collected episodes of {len(_ACTIONS)} steps"
    with SandboxPool(1, max_episodes=None, provider=plan.provider, sessions=_SESSIONS) as pool:
        _collect(4 * _SESSIONS, pool=pool)
        rate = episodes / _collect(episodes, pool=pool)
    note = f"n={episodes}, {_SESSIONS} sessions"
    yield Row(what=what, unit="/s", median=rate, at_least=150, note=note)
    rate = episodes / _collect(episodes, env_options={"provider": plan.provider})
    yield Row(what="  with the start and the end of the sandbox", unit="/s", median=rate, note=note)


def _collect(episodes: int, **options: Any) -> float:
    """Collect a dataset and return the duration in seconds."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        collect(
            "CodingEnv-v0",
            list(_ACTIONS),
            episodes,
            seed=1,
            path=f"{directory}/episodes",
            sessions=_SESSIONS,
            max_steps=len(_ACTIONS),
            progress=False,
            **options,
        )
        return time.perf_counter() - began
