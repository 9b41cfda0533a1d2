"""Rollout datasets: collection, export and replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    from coding_gym._lazy import lazy_names

    # Imported when they are used: reading a dataset needs no environment.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ChatPolicy": "coding_gym.datasets.policies.chat",
            "Dataset": "coding_gym.datasets.dataset",
            "Decision": "coding_gym.datasets.policies.base",
            "Difference": "coding_gym.datasets.replaying",
            "Episode": "coding_gym.datasets.episode",
            "EpisodeStart": "coding_gym.datasets.policies.base",
            "FunctionPolicy": "coding_gym.datasets.policies.base",
            "Policy": "coding_gym.datasets.policies.base",
            "RandomPolicy": "coding_gym.datasets.policies.base",
            "ScriptedPolicy": "coding_gym.datasets.policies.base",
            "Step": "coding_gym.datasets.episode",
            "collect": "coding_gym.datasets.collection",
            "export_chat": "coding_gym.datasets.export.chat",
            "export_minari": "coding_gym.datasets.export.minari",
            "export_parquet": "coding_gym.datasets.export.parquet",
            "load": "coding_gym.datasets.dataset",
            "replay": "coding_gym.datasets.replaying",
        },
    )
