"""Registration of coding_gym's environments.

Entry points are strings, so that ``EnvSpec`` is serializable and this package does not import ``coding_gym``.
"""

from __future__ import annotations

import gymnasium as gym

__all__ = ["register_envs"]


def register_envs() -> None:
    """Register the environments with Gymnasium. Idempotent."""
    if "CodingEnv-v0" not in gym.registry:
        gym.register(
            id="CodingEnv-v0",
            entry_point="coding_gym.envs.coding_env:CodingEnv",
            vector_entry_point="coding_gym.envs.vector_env:CodingVectorEnv",
            nondeterministic=False,
        )
    if "CodingEnvGUI-v0" not in gym.registry:
        gym.register(
            id="CodingEnvGUI-v0",
            entry_point="coding_gym.envs.gui_env:CodingEnvGUI",
            vector_entry_point="coding_gym.envs.gui_env:CodingGuiVectorEnv",
        )
    if "CodingShellEnv-v0" not in gym.registry:
        gym.register(
            id="CodingShellEnv-v0",
            entry_point="coding_gym.envs.shell_env:CodingShellEnv",
            vector_entry_point="coding_gym.envs.shell_env:CodingShellVectorEnv",
        )
    if "CodingTask-v0" not in gym.registry:
        gym.register(
            id="CodingTask-v0",
            entry_point="coding_gym.envs.task_env:CodingTaskEnv",
            vector_entry_point="coding_gym.envs.task_env:CodingTaskVectorEnv",
        )
