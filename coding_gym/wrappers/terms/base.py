"""Base classes of reward terms, and the record of a step that they evaluate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_gym.envs.episode import Info
from coding_gym.errors import ConfigurationError

__all__ = ["FunctionTerm", "RewardTerm", "Step"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Record of a step in the environment that ``RewardSum`` wraps. Terms must not modify it.

    Attributes:
        action: The action.
        observation: The observation after the step.
        reward: The environment's own reward.
        terminated: Whether the episode was terminated.
        truncated: Whether the episode was truncated.
        info: The info of the step.
        previous_observation: The observation before the step.
        previous_info: The info before the step.
        number: Number of the step in the episode, from 1.
        seconds: Wall-clock duration of the step, which differs from run to run; in a vector environment, that of the joint step
            of all environments. None if it was not measured.
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
            ConfigurationError: If the action is not source text.
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
        """Standard output of the step."""
        return str(self._seen("stdout", str))

    @property
    def stderr(self) -> str:
        """Standard error of the step."""
        return str(self._seen("stderr", str))

    @property
    def exit_code(self) -> int:
        """Exit code of the step."""
        return int(self._seen("exit_code", int | np.integer))

    @property
    def screenshot(self) -> NDArray[np.uint8]:
        """Screenshot after the step: uint8, shape (height, width, 3)."""
        screenshot: NDArray[np.uint8] = self._seen("screenshot", np.ndarray)
        return screenshot

    def _seen(self, key: str, kind: Any) -> Any:
        value = self.observation.get(key) if isinstance(self.observation, Mapping) else None
        if not isinstance(value, kind):
            message = (
                f"Expected an observation with {key!r} as CodingEnv returns it, got {self.observation!r:.200}: put rewards "
                "inside of the wrappers that change observations, as in BytesObservation(RewardSum(env, terms))"
            )
            raise ConfigurationError(message)
        return value


class RewardTerm(ABC):
    """Base class of reward terms, which evaluate the steps of an episode; ``reset`` clears their state.

    The values of an episode must be reproducible, unless the docstring of a term says otherwise.

    Attributes:
        name: Default key in ``info["reward_terms"]``; ``RewardSum`` may assign another one.

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

    def reset(self) -> None:  # noqa: B027 - most terms are stateless
        """Reset the state at the beginning of an episode."""

    @abstractmethod
    def __call__(self, step: Step) -> float:
        """Return the value of a step."""


class FunctionTerm(RewardTerm):
    """Wraps a function of a step as a stateless term.

    Args:
        function: Returns the value of a step.

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
