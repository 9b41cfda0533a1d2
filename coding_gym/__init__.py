"""coding_gym: Gymnasium environments in which an agent writes code and a hardened container runs it.

>>> import gymnasium as gym
>>> import coding_gym
>>> env = gym.make("CodingEnv-v0")
"""

from __future__ import annotations

from coding_gym import inputs
from coding_gym.async_env import AsyncCodingEnv
from coding_gym.coding_client import CodeAction, CodeObservation, CodeState, CodingClient
from coding_gym.config import SandboxConfig
from coding_gym.env import CodingEnv
from coding_gym.gui_env import CodingEnvGUI
from coding_gym.interpreter import CodeInterpreter
from coding_gym.pool import SandboxPool
from coding_gym.results import Result
from coding_gym.spaces import CodeText
from coding_gym.vector import CodingVectorEnv
from coding_gym.version import __version__
from coding_gym.video import Video
from coding_gym_server.protocol import Rectangle, Window
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
    "CodingVectorEnv",
    "Rectangle",
    "Result",
    "SandboxConfig",
    "SandboxPool",
    "Video",
    "Window",
    "__version__",
    "inputs",
]

register_envs()
