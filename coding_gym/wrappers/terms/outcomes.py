"""Terms for the outcome of a step: tests, exit code, time, and the environment's own reward."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from coding_gym._validation import check_one_of
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import RewardTerm, Step

__all__ = ["EnvReward", "ExitCode", "Improvement", "PassedTests", "TimePenalty"]


class EnvReward(RewardTerm):
    """The reward of the wrapped environment.

    Example:
        >>> EnvReward()(Step(action="1", observation={}, info={}, reward=0.5))
        0.5
    """

    name = "env"

    def __call__(self, step: Step) -> float:
        return step.reward


class PassedTests(RewardTerm):
    """The fraction of a task's tests that pass, 0 to 1; 0 for a step that was not graded.

    It reads ``tests_passed``, ``tests_total`` and ``graded`` from the info of ``CodingTask-v0``.

    Example:
        >>> info = {"graded": True, "tests_passed": 3, "tests_total": 4}
        >>> PassedTests()(Step(action="1", observation={}, info=info))
        0.75
    """

    name = "tests"

    def __call__(self, step: Step) -> float:
        info = step.info
        if not info.get("graded", False) or not info.get("tests_total", 0):
            return 0.0
        return float(info["tests_passed"] / info["tests_total"])


class Improvement(PassedTests):
    """The increase of the passed fraction over the best of the previous steps of the episode.

    The values of an episode add up to its best fraction, even if it reaches that fraction repeatedly.

    Example:
        >>> term = Improvement()
        >>> [
        ...     term(Step(action="1", observation={}, info={"graded": True, "tests_passed": passed, "tests_total": 4}))
        ...     for passed in (1, 3, 0, 4)
        ... ]
        [0.25, 0.5, 0.0, 0.25]
    """

    name = "improvement"

    def __init__(self) -> None:
        self._best = 0.0

    def reset(self) -> None:
        self._best = 0.0

    def __call__(self, step: Step) -> float:
        fraction = super().__call__(step)
        gain = max(0.0, fraction - self._best)
        self._best = max(self._best, fraction)
        return gain


class ExitCode(RewardTerm):
    """Maps exit codes to values.

    Args:
        values: Exit code to value; 1 for exit code 0 by default.
        other: Value of all other exit codes.

    Example:
        >>> term = ExitCode({0: 1.0, 124: -1.0}, other=-0.5)
        >>> [term(Step(action="1", observation={"exit_code": code}, info={})) for code in (0, 1, 124)]
        [1.0, -0.5, -1.0]
    """

    name = "exit_code"

    def __init__(self, values: Mapping[int, float] = MappingProxyType({0: 1.0}), *, other: float = 0.0) -> None:
        self._values = {int(code): float(value) for code, value in values.items()}
        self._other = float(other)

    def __call__(self, step: Step) -> float:
        return self._values.get(step.exit_code, self._other)


class TimePenalty(RewardTerm):
    """A cost per step or per second; use a negative weight.

    Args:
        per: ``step``, or ``second`` of wall-clock time, which varies with the load of the machine and makes episodes
            non-reproducible.

    Raises:
        ConfigurationError: If the unit is unknown.

    Example:
        >>> TimePenalty()(Step(action="1", observation={}, info={}))
        1.0
        >>> TimePenalty(per="second")(Step(action="1", observation={}, info={}, seconds=0.25))
        0.25
    """

    name = "time"

    def __init__(self, *, per: Literal["step", "second"] = "step") -> None:
        check_one_of("per", per, ("step", "second"))
        self._per = per

    def __call__(self, step: Step) -> float:
        if self._per == "step":
            return 1.0
        if step.seconds is None:
            message = "Expected an environment with last_timing, as CodingEnv has it: use TimePenalty(per='step')"
            raise ConfigurationError(message)
        return step.seconds
