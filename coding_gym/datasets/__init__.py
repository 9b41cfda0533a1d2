"""Rollouts as data: collecting, exporting, replaying."""

from __future__ import annotations

from coding_gym.datasets.chat import export_chat
from coding_gym.datasets.chat_policy import ChatPolicy
from coding_gym.datasets.collecting import collect
from coding_gym.datasets.dataset import Dataset, load
from coding_gym.datasets.minari_format import export_minari
from coding_gym.datasets.parquet import export_parquet
from coding_gym.datasets.policies import Decision, EpisodeStart, FunctionPolicy, Policy, RandomPolicy, ScriptedPolicy
from coding_gym.datasets.records import Episode, Step
from coding_gym.datasets.replaying import Difference, replay

__all__ = [
    "ChatPolicy",
    "Dataset",
    "Decision",
    "Difference",
    "Episode",
    "EpisodeStart",
    "FunctionPolicy",
    "Policy",
    "RandomPolicy",
    "ScriptedPolicy",
    "Step",
    "collect",
    "export_chat",
    "export_minari",
    "export_parquet",
    "load",
    "replay",
]
