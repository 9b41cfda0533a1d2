"""Former path of ``coding_gym.envs.vector_env``, kept for saved environment specs until version 0.3."""

from coding_gym.envs.vector_env import CodingVectorEnv

__all__ = ["CodingVectorEnv"]
