"""Where and how often to measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from coding_gym.errors import ProviderUnavailableError
from coding_gym.vector import CodingVectorEnv

__all__ = ["Plan", "choose_provider", "milliseconds", "repeat"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where and how often to measure.

    Attributes:
        provider: ``docker`` or ``local``.
        quick: Whether to measure a tenth as often.
    """

    provider: str
    quick: bool

    def times(self, full: int, *, least: int = 3) -> int:
        """Return how often to do what a full run does ``full`` times."""
        return max(full // 10, min(least, full)) if self.quick else full

    def make_env(self, **options: Any) -> gym.Env[Any, str]:
        """Make an environment as users do."""
        return gym.make("CodingEnv-v0", provider=self.provider, **options)

    def make_vector_env(self, **options: Any) -> CodingVectorEnv:
        """Make a vector environment."""
        return CodingVectorEnv(provider=self.provider, **options)


def choose_provider(provider: str, *, quick: bool) -> Plan:
    """Settle what ``auto`` means, and have the image ready, so that its build is not measured.

    Raises:
        ProviderUnavailableError: ``docker`` was asked for, and no engine answers.
        ImageBuildError: The image does not build.
    """
    if provider == "local":
        return Plan(provider="local", quick=quick)
    from coding_gym.providers.docker import connect_to_engine
    from coding_gym.providers.image import ensure_image

    try:
        client = connect_to_engine()
    except ProviderUnavailableError:
        if provider == "docker":
            raise
        return Plan(provider="local", quick=quick)
    try:
        ensure_image(client, None)
    finally:
        client.close()
    return Plan(provider="docker", quick=quick)


def milliseconds(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def repeat(times: int, action: Callable[[], object], *, pause: float = 0.0) -> list[float]:
    """Return how long ``action`` takes in milliseconds, each time.

    Args:
        times: How often.
        action: What.
        pause: Seconds to sleep before each time; not counted.
    """
    samples = []
    for _ in range(times):
        if pause:
            time.sleep(pause)
        samples.append(milliseconds(action))
    return samples
