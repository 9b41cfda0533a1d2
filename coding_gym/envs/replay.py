"""Replay of recorded actions, and its comparison with the record."""

from __future__ import annotations

from typing import Any

from coding_gym.envs.episode import RecordedStep
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import Observation

__all__ = ["ReplayReport", "check_seed"]

_COMPARED = ("stdout", "stderr", "exit_code")


class ReplayReport:
    """The number of replayed steps, and the differences of their outputs from the recorded ones."""

    def __init__(self) -> None:
        self._steps = 0
        self._differences: list[dict[str, Any]] = []

    def add(self, recorded: RecordedStep, found: Observation) -> None:
        """Compare a step with its record."""
        self._differences += [
            {"step": self._steps, "field": name, "expected": getattr(recorded, name), "found": getattr(found, name)}
            for name in _COMPARED
            if getattr(recorded, name) != getattr(found, name)
        ]
        self._steps += 1

    def as_info(self) -> dict[str, Any]:
        """Return the report for ``info["replay"]``."""
        return {"steps": self._steps, "differences": self._differences}


def check_seed(seed: int | None) -> None:
    """Raise if there is a seed.

    Raises:
        ConfigurationError: If there is one.
    """
    if seed is not None:
        message = "Expected seed=None for a replay, which runs the actions with the seed of their episode"
        raise ConfigurationError(message)
