"""coding_gym: Gymnasium environments in which an agent writes code and a hardened container runs it.

>>> import gymnasium as gym
>>> import coding_gym
>>> env = gym.make("CodingEnv-v0")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coding_gym._version import __version__
from envs_registry import register_envs

if TYPE_CHECKING:
    from coding_gym import branching, inputs
    from coding_gym.code_interpreter import CodeInterpreter
    from coding_gym.envs.async_coding_env import AsyncCodingEnv
    from coding_gym.envs.coding_env import CodingEnv
    from coding_gym.envs.gui_env import CodingEnvGUI, CodingGuiVectorEnv
    from coding_gym.envs.shell_env import CodingShellEnv, CodingShellVectorEnv
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

if not TYPE_CHECKING:
    from coding_gym._lazy import lazy_names

    # Imported when they are used: most commands need few of them.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncCodingEnv": "coding_gym.envs.async_coding_env",
            "CodeAction": "coding_gym.openenv.client",
            "CodeInterpreter": "coding_gym.code_interpreter",
            "CodeObservation": "coding_gym.openenv.client",
            "CodeState": "coding_gym.openenv.client",
            "CodeText": "coding_gym.spaces",
            "CodingClient": "coding_gym.openenv.client",
            "CodingEnv": "coding_gym.envs.coding_env",
            "CodingEnvGUI": "coding_gym.envs.gui_env",
            "CodingGuiVectorEnv": "coding_gym.envs.gui_env",
            "CodingShellEnv": "coding_gym.envs.shell_env",
            "CodingShellVectorEnv": "coding_gym.envs.shell_env",
            "CodingVectorEnv": "coding_gym.envs.vector_env",
            "MarkedScreen": "coding_gym.media.marks",
            "Rectangle": "coding_gym_server.protocol",
            "Result": "coding_gym.media.results",
            "SandboxConfig": "coding_gym.sandbox.config",
            "SandboxPool": "coding_gym.sandbox.pool",
            "Snapshot": "coding_gym.envs.snapshot",
            "Video": "coding_gym.media.video",
            "Widget": "coding_gym_server.protocol",
            "Window": "coding_gym_server.protocol",
            "branching": "coding_gym",
            "format_widgets": "coding_gym.media.marks",
            "inputs": "coding_gym",
            "mark_widgets": "coding_gym.media.marks",
        },
    )

register_envs()
if os.environ.get("CODING_GYM_WATCH"):
    from coding_gym import plugins

    for _observe in plugins.load_all("observers").values():
        _observe()
