"""Former path of ``coding_gym.envs.task_env``, kept for saved environment specs until version 0.3."""

from coding_gym.envs.task_env import CodingTaskEnv

__all__ = ["CodingTaskEnv"]
