"""Former path of ``coding_gym.envs.gui_env``, kept for saved environment specs until version 0.3."""

from coding_gym.envs.gui_env import CodingEnvGUI

__all__ = ["CodingEnvGUI"]
