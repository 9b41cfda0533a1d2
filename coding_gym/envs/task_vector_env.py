"""``CodingTaskVectorEnv``: vector form of ``CodingTask-v0``, which grades the submissions of a step concurrently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from gymnasium.vector import AutoresetMode

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import Obs
from coding_gym.envs.options import CodingEnvKwargs
from coding_gym.envs.task_env import SESSIONS_PER_ENV, CodingTaskEnv, as_suite
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import TaskSuite

__all__ = ["CodingTaskVectorEnv"]


class CodingTaskVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingTask-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    Args:
        num_envs: Number of environments.
        suite: The tasks, or an argument of ``load_suite``. Required.
        max_turns: Number of steps after which an episode is truncated.
        options: Options of ``CodingVectorEnv``. An environment occupies two sessions of a sandbox, or two slots of a pool.

    Attributes:
        suite: The tasks.

    Raises:
        ConfigurationError: If an option is invalid, or the suite does not exist or is empty.
    """

    _sessions_per_env = SESSIONS_PER_ENV

    def __init__(
        self,
        num_envs: int = 1,
        *,
        suite: TaskSuite | str | Path | None = None,
        max_turns: int = 10,
        pool: SandboxPool | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        sessions_per_sandbox: int = 8,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        self.suite = as_suite(suite)
        self._max_turns = max_turns
        super().__init__(
            num_envs,
            max_episode_steps=max_episode_steps,
            autoreset_mode=autoreset_mode,
            sessions_per_sandbox=sessions_per_sandbox,
            pool=pool,
            config=config,
            **options,
        )

    def _make_env(self, **settings: Any) -> CodingEnv:
        if self._pool is not None:
            # Submissions are graded in a second slot.
            settings = {**settings, "config": None, "pool": self._pool}
        return CodingTaskEnv(suite=self.suite, max_turns=self._max_turns, **settings)

    def _batch(self, observations: list[Obs]) -> Obs:
        return {**super()._batch(observations), "prompt": tuple(obs["prompt"] for obs in observations)}
