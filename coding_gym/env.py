"""Former path of ``coding_gym.envs.coding_env``, kept for saved environment specs until version 0.3."""

from coding_gym.envs.coding_env import CodingEnv

__all__ = ["CodingEnv"]
