"""Matplotlib's font cache: without a writable directory for it, matplotlib scans all fonts at every start."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

__all__ = ["prepare"]

_DIRECTORY = "matplotlib"


def prepare(base: Path, *, seems_writable: bool) -> Path:
    """Create matplotlib's directory with a copy of the existing font cache.

    Args:
        base: The parent directory.
        seems_writable: Whether its mode permits all users to write, which matplotlib requires before it reads the cache. Then
            Landlock must not permit it.

    Returns:
        The directory.
    """
    directory = base / _DIRECTORY
    directory.mkdir(exist_ok=True)
    directory.chmod(0o1777 if seems_writable else 0o755)
    # A user without a home directory has no cache.
    existing = Path(os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.cache/matplotlib"))
    for cache in existing.glob("fontlist-*.json"):
        with contextlib.suppress(OSError):
            shutil.copy(cache, directory)
    return directory
