"""The cache of this user: what is found out, installed or generated once, and kept across runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """Return the directory of the cache, which may not exist: ``coding_gym`` in ``XDG_CACHE_HOME``, ``~/.cache`` by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "coding_gym"
