"""coding_gym: Gymnasium environments in which an agent writes code and a hardened container runs it.

>>> import gymnasium as gym
>>> import coding_gym
>>> env = gym.make("CodingEnv-v0")
"""

from __future__ import annotations

from coding_gym import branching, inputs
from coding_gym._version import __version__
from coding_gym.code_interpreter import CodeInterpreter
from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.first_come import FirstComeVectorEnv
from coding_gym.envs.gui_env import CodingEnvGUI
from coding_gym.envs.gui_vector_env import CodingGuiVectorEnv
from coding_gym.envs.shell_env import CodingShellEnv
from coding_gym.envs.shell_vector_env import CodingShellVectorEnv
from coding_gym.envs.snapshot import Snapshot
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.media.marks import MarkedScreen, format_widgets, mark_widgets
from coding_gym.media.results import Result
from coding_gym.media.video import Video
from coding_gym.openenv.client import CodeAction, CodeObservation, CodeState, CodingClient
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.spaces import CodeText
from coding_gym_server.protocol import Rectangle, Widget, Window
from envs_registry import register_envs

__all__ = [
    "AsyncCodingEnv",
    "CodeAction",
    "CodeInterpreter",
    "CodeObservation",
    "CodeState",
    "CodeText",
    "CodingClient",
    "CodingEnv",
    "CodingEnvGUI",
    "CodingGuiVectorEnv",
    "CodingShellEnv",
    "CodingShellVectorEnv",
    "CodingVectorEnv",
    "FirstComeVectorEnv",
    "MarkedScreen",
    "Rectangle",
    "Result",
    "SandboxConfig",
    "SandboxPool",
    "Snapshot",
    "Video",
    "Widget",
    "Window",
    "__version__",
    "branching",
    "format_widgets",
    "inputs",
    "mark_widgets",
]

register_envs()
