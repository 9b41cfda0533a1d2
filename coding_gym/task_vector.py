"""``CodingTaskVectorEnv``: many agents solve problems with hidden tests, and all that a step submits is graded at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_gym.env import CodingEnv
from coding_gym.episode import Obs
from coding_gym.errors import ConfigurationError
from coding_gym.pool import SandboxPool
from coding_gym.task_env import SESSIONS_PER_ENV, CodingTaskEnv, as_suite
from coding_gym.tasks import TaskSuite
from coding_gym.vector import CodingVectorEnv

__all__ = ["CodingTaskVectorEnv"]


class CodingTaskVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingTask-v0``, equal to a ``SyncVectorEnv`` of it step by step, but for the time it takes.

    Args:
        num_envs: How many environments.
        suite: The tasks, or what ``load_suite`` takes.
        max_turns: Steps after which an episode is truncated.
        options: What ``CodingVectorEnv`` takes, but ``pool``: sandboxes have two sessions for each environment.

    Attributes:
        suite: The tasks.

    Raises:
        ConfigurationError: A setting cannot be, there is no such suite, or it is empty.
    """

    _sessions_per_env = SESSIONS_PER_ENV

    def __init__(
        self,
        num_envs: int = 1,
        *,
        suite: TaskSuite | str | Path,
        max_turns: int = 10,
        pool: SandboxPool | None = None,
        **options: Any,
    ) -> None:
        if pool is not None:
            message = (
                "A vector environment of tasks keeps sandboxes of its own: leave pool= out, and pass sessions_per_sandbox="
            )
            raise ConfigurationError(message)
        self.suite = as_suite(suite)
        self._max_turns = max_turns
        super().__init__(num_envs, **options)

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingTaskEnv(suite=self.suite, max_turns=self._max_turns, **settings)

    def _batch(self) -> Obs:
        return {**super()._batch(), "prompt": tuple(obs["prompt"] for obs in self._latest)}
