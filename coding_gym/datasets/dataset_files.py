"""Files in the directory of a dataset."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DETAILS_FILE", "EPISODES_FILE", "FAULTS_FILE", "count_faults"]

EPISODES_FILE = "episodes.log"
"""The episodes, see ``coding_gym.datasets.episode_log``."""

DETAILS_FILE = "details.jsonl"
"""Times and verdicts, which differ between identical runs; see ``coding_gym.datasets.details``."""

FAULTS_FILE = "faults.jsonl"
"""Failures of sandboxes, after which an episode was retried."""


def count_faults(directory: Path) -> int:
    """Return the number of sandbox failures in a dataset after which an episode was retried."""
    try:
        return (directory / FAULTS_FILE).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
