"""Matplotlib's font cache: without a writable directory for it, matplotlib scans all fonts at every start."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

__all__ = ["prepare"]

_DIRECTORY = "matplotlib"


def prepare(base: Path) -> Path:
    """Create matplotlib's directory below ``base`` with a copy of the existing font cache; return the directory."""
    directory = base / _DIRECTORY
    directory.mkdir(mode=0o755, exist_ok=True)
    # A user without a home directory has no cache.
    existing = Path(os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.cache/matplotlib"))
    for cache in existing.glob("fontlist-*.json"):
        with contextlib.suppress(OSError):
            shutil.copy(cache, directory)
    return directory
