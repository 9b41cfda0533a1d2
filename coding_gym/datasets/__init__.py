"""Rollout datasets: collection, export and replay."""

from __future__ import annotations

from coding_gym.datasets.collection import collect
from coding_gym.datasets.dataset import Dataset, load
from coding_gym.datasets.episode import Episode, Step
from coding_gym.datasets.export.chat import export_chat
from coding_gym.datasets.export.minari import export_minari
from coding_gym.datasets.export.parquet import export_parquet
from coding_gym.datasets.policies.base import Decision, EpisodeStart, FunctionPolicy, Policy, RandomPolicy, ScriptedPolicy
from coding_gym.datasets.policies.chat import ChatPolicy
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
