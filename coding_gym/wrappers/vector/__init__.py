"""The wrappers of ``coding_gym.wrappers`` for vector environments, by the same names."""

from __future__ import annotations

from coding_gym.wrappers.vector.actions import FencedCode, SnippetActions, TemplateActions, TokenActions
from coding_gym.wrappers.vector.observations import BytesObservation, ChatObservation, GrayScreen, ResizeScreen, StackTranscript
from coding_gym.wrappers.vector.rewards import PotentialShaping, RewardSum
from coding_gym.wrappers.vector.vectorize import VectorizeWrapper

__all__ = [
    "BytesObservation",
    "ChatObservation",
    "FencedCode",
    "GrayScreen",
    "PotentialShaping",
    "ResizeScreen",
    "RewardSum",
    "SnippetActions",
    "StackTranscript",
    "TemplateActions",
    "TokenActions",
    "VectorizeWrapper",
]
