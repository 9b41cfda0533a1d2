"""What a reward is made of: a step, and a term that judges it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_gym.episode import Info
from coding_gym.errors import ConfigurationError

__all__ = ["FunctionTerm", "RewardTerm", "Step"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of an episode, as the environment that ``RewardSum`` wraps took it. Terms only read it.

    Attributes:
        action: What was done.
        observation: What was seen then.
        reward: The environment's own reward.
        terminated: Whether the episode has ended.
        truncated: Whether it was cut off.
        info: The info of the step.
        previous_observation: What was seen before.
        previous_info: The info that came with it.
        number: 1 for the first step of the episode.
        seconds: Wall-clock time that the step took, which differs from run to run; in a vector environment that of all its
            environments' step together. None where nobody has measured.
    """

    action: Any
    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Info
    previous_observation: Any = None
    previous_info: Info | None = None
    number: int = 1
    seconds: float | None = None

    @property
    def code(self) -> str:
        """The source text of the action.

        Raises:
            ConfigurationError: The action is no source text.
        """
        code = self.action.get("code") if isinstance(self.action, Mapping) else self.action
        if not isinstance(code, str):
            message = (
                f"Expected an action that is source text, got {self.action!r:.200}: "
                "put rewards inside of the wrappers that change actions, as in SnippetActions(RewardSum(env, terms), snippets)"
            )
            raise ConfigurationError(message)
        return code

    @property
    def stdout(self) -> str:
        """What the step printed."""
        return str(self._seen("stdout", str))

    @property
    def stderr(self) -> str:
        """What it printed to standard error."""
        return str(self._seen("stderr", str))

    @property
    def exit_code(self) -> int:
        """Its exit code."""
        return int(self._seen("exit_code", int | np.integer))

    @property
    def screenshot(self) -> NDArray[np.uint8]:
        """The screen: uint8, shape (height, width, 3)."""
        screenshot: NDArray[np.uint8] = self._seen("screenshot", np.ndarray)
        return screenshot

    def _seen(self, key: str, kind: Any) -> Any:
        value = self.observation.get(key) if isinstance(self.observation, Mapping) else None
        if not isinstance(value, kind):
            message = (
                f"Expected an observation with {key!r} as CodingEnv gives it, got {self.observation!r:.200}: put rewards "
                "inside of the wrappers that change observations, as in BytesObservation(RewardSum(env, terms))"
            )
            raise ConfigurationError(message)
        return value


class RewardTerm(ABC):
    """Judges the steps of an episode; what it remembers of them is forgotten at the next.

    The same episode has to give the same values, unless the docstring of a term says otherwise.

    Attributes:
        name: Its key in ``info["reward_terms"]``, unless ``RewardSum`` gives it another.

    Example:
        >>> class Haste(RewardTerm):
        ...     name = "haste"
        ...
        ...     def __call__(self, step):
        ...         return 1.0 / step.number
        >>> Haste()(Step(action="1", observation={}, info={}, number=2))
        0.5
    """

    name: str = ""

    def reset(self) -> None:  # noqa: B027 - most terms remember nothing
        """Begin an episode."""

    @abstractmethod
    def __call__(self, step: Step) -> float:
        """Return what a step is worth."""


class FunctionTerm(RewardTerm):
    """A function of a step as a term that remembers nothing.

    Args:
        function: Returns what a step is worth.

    Example:
        >>> def brief(step):
        ...     return float(len(step.code) < 10)
        >>> term = FunctionTerm(brief)
        >>> term.name, term(Step(action="1 + 1", observation={}, info={}))
        ('brief', 1.0)
    """

    def __init__(self, function: Callable[[Step], float]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def __call__(self, step: Step) -> float:
        return float(self._function(step))
