"""Environment wrappers; ``coding_gym.wrappers.vector`` has the ones for vector environments."""

from __future__ import annotations

from coding_gym.wrappers.actions.fenced_code import FencedCode
from coding_gym.wrappers.actions.snippets import SnippetActions
from coding_gym.wrappers.actions.templates import TemplateActions
from coding_gym.wrappers.actions.tokens import TokenActions
from coding_gym.wrappers.observations.bytes import BytesObservation
from coding_gym.wrappers.observations.chat import ChatObservation
from coding_gym.wrappers.observations.screen import GrayScreen, ResizeScreen
from coding_gym.wrappers.observations.transcript import StackTranscript
from coding_gym.wrappers.play_program import PlayProgram
from coding_gym.wrappers.rewards.potential_shaping import PotentialShaping
from coding_gym.wrappers.rewards.reward_sum import RewardSum

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
