"""The environment ids of coding_gym and what they stand for.

Entry points are strings: they keep ``EnvSpec`` serialisable, and this package free of imports from ``coding_gym``.
"""

from __future__ import annotations

import gymnasium as gym

__all__ = ["register_envs"]


def register_envs() -> None:
    """Register the environments with Gymnasium; harmless when they are registered already."""
    if "CodingEnv-v0" not in gym.registry:
        gym.register(
            id="CodingEnv-v0",
            entry_point="coding_gym.env:CodingEnv",
            vector_entry_point="coding_gym.vector:CodingVectorEnv",
            nondeterministic=False,
        )
    if "CodingEnvGUI-v0" not in gym.registry:
        gym.register(id="CodingEnvGUI-v0", entry_point="coding_gym.gui_env:CodingEnvGUI")
    if "CodingTask-v0" not in gym.registry:
        gym.register(
            id="CodingTask-v0",
            entry_point="coding_gym.task_env:CodingTaskEnv",
            vector_entry_point="coding_gym.task_vector:CodingTaskVectorEnv",
        )
