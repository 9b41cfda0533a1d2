"""Former path of ``coding_gym.envs.task_vector_env``, kept for saved environment specs until version 0.3."""

from coding_gym.envs.task_vector_env import CodingTaskVectorEnv

__all__ = ["CodingTaskVectorEnv"]
