"""Environment wrappers; ``coding_gym.wrappers.vector`` has the ones for vector environments."""

from __future__ import annotations

from coding_gym.wrappers.actions import FencedCode, SnippetActions, TemplateActions, TokenActions
from coding_gym.wrappers.observations import BytesObservation, ChatObservation, GrayScreen, ResizeScreen, StackTranscript
from coding_gym.wrappers.play_program import PlayProgram
from coding_gym.wrappers.rewards import PotentialShaping, RewardSum

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
