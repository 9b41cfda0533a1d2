"""``CodingShellVectorEnv``: vector form of ``CodingShellEnv-v0``, with concurrent steps."""

from __future__ import annotations

from typing import Any

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.shell_env import CodingShellEnv
from coding_gym.envs.vector_env import CodingVectorEnv

__all__ = ["CodingShellVectorEnv"]


class CodingShellVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingShellEnv-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    Args:
        num_envs: Number of environments.
        options: Options of ``CodingVectorEnv`` and ``CodingShellEnv``.

    Raises:
        ConfigurationError: If an option is invalid.

    Example:
        >>> envs = gym.make_vec("CodingShellEnv-v0", num_envs=2)  # doctest: +SKIP
        >>> observations, infos = envs.reset(seed=1)  # doctest: +SKIP
        >>> observations, *_ = envs.step(["echo $((6 * 7))", "pwd"])  # doctest: +SKIP
    """

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        options.setdefault("backend", "bash")
        super().__init__(num_envs, **options)

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingShellEnv(**settings)
