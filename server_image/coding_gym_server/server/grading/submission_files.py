"""Checks of submission workspaces for modifications."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from coding_gym_server.workspace import directory as workspace

__all__ = ["WORKSPACE_DIRECTORIES", "is_clean"]

WORKSPACE_DIRECTORIES = (workspace.WORK, workspace.HOME, workspace.TEMPORARY)
"""The directories of a submission's workspace."""


def is_clean(directory: Path) -> bool:
    """Return whether a workspace is in its initial state."""
    names: set[str] = set()
    try:
        for entry in os.scandir(directory):
            names.add(entry.name)
            status = entry.stat(follow_symlinks=False)
            if status.st_mode != stat.S_IFDIR | 0o700 or _has_entries(entry.path):
                return False
    except OSError:
        # The submission removed its permissions.
        return False
    return names == set(WORKSPACE_DIRECTORIES)


def _has_entries(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(True for _ in entries)
