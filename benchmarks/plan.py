"""Benchmark plan: provider and number of repetitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import ProviderUnavailableError

__all__ = ["BenchPlan", "choose_provider", "milliseconds", "repeat"]


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """Provider and number of repetitions of the benchmarks.

    Attributes:
        provider: ``docker`` or ``local``.
        quick: Whether to run a tenth of the repetitions.
    """

    provider: str
    quick: bool

    def times(self, full: int, *, least: int = 3) -> int:
        """Return the number of repetitions for ``full`` repetitions of a full run, at least ``least`` in a quick run."""
        return max(full // 10, min(least, full)) if self.quick else full

    def make_env(self, **options: Any) -> gym.Env[Any, str]:
        """Make an environment with ``gym.make``, as users do."""
        return gym.make("CodingEnv-v0", provider=self.provider, **options)

    def make_vector_env(self, **options: Any) -> CodingVectorEnv:
        """Make a vector environment."""
        return CodingVectorEnv(provider=self.provider, **options)


def choose_provider(provider: str, *, quick: bool) -> BenchPlan:
    """Resolve ``auto`` to a provider, and ensure that the image exists, so that its build is not measured.

    Args:
        provider: ``docker``, ``local``, or ``auto``: Docker if an engine responds.
        quick: Whether to run a tenth of the repetitions.

    Raises:
        ProviderUnavailableError: If ``provider`` is ``docker`` and no engine responds.
        ImageBuildError: If the image build fails.
    """
    if provider == "local":
        return BenchPlan(provider="local", quick=quick)
    from coding_gym.sandbox.docker.engine import (
        connect_to_engine,
    )
    from coding_gym.sandbox.docker.images import ensure_image

    try:
        client = connect_to_engine()
    except ProviderUnavailableError:
        if provider == "docker":
            raise
        return BenchPlan(provider="local", quick=quick)
    try:
        ensure_image(client, None)
    finally:
        client.close()
    return BenchPlan(provider="docker", quick=quick)


def milliseconds(action: Callable[[], object]) -> float:
    """Return the duration of ``action`` in milliseconds."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def repeat(times: int, action: Callable[[], object], *, pause: float = 0.0) -> list[float]:
    """Return the durations of repeated calls of ``action``, in milliseconds.

    Args:
        times: Number of repetitions.
        action: Function to measure.
        pause: Pause before each call in seconds; not included in the durations.
    """
    samples = []
    for _ in range(times):
        if pause:
            time.sleep(pause)
        samples.append(milliseconds(action))
    return samples
