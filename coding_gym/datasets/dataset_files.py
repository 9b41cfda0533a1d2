"""Names of the files in the directory of a dataset."""

from __future__ import annotations

__all__ = ["DETAILS_FILE", "EPISODES_FILE", "FAULTS_FILE"]

EPISODES_FILE = "episodes.log"
"""The episodes, see ``coding_gym.datasets.episode_log``."""

DETAILS_FILE = "details.jsonl"
"""What differs between identical runs, see ``coding_gym.datasets.details``."""

FAULTS_FILE = "faults.jsonl"
"""Failures of sandboxes, after which an episode was retried."""
