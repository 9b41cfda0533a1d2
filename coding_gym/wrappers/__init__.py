"""Wrappers that turn an environment into another one; ``coding_gym.wrappers.vector`` has them for vector environments."""

from __future__ import annotations

from coding_gym.wrappers.bytes_observation import BytesObservation
from coding_gym.wrappers.chat_observation import ChatObservation
from coding_gym.wrappers.fenced_code import FencedCode
from coding_gym.wrappers.play_program import PlayProgram
from coding_gym.wrappers.potential_shaping import PotentialShaping
from coding_gym.wrappers.reward_sum import RewardSum
from coding_gym.wrappers.screens import GrayScreen, ResizeScreen
from coding_gym.wrappers.snippet_actions import SnippetActions
from coding_gym.wrappers.stack_transcript import StackTranscript
from coding_gym.wrappers.template_actions import TemplateActions
from coding_gym.wrappers.token_actions import TokenActions

__all__ = [
    "BytesObservation",
    "ChatObservation",
    "FencedCode",
    "GrayScreen",
    "PlayProgram",
    "PotentialShaping",
    "ResizeScreen",
    "RewardSum",
    "SnippetActions",
    "StackTranscript",
    "TemplateActions",
    "TokenActions",
]
