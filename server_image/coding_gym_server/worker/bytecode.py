"""Imports of modules that have just been written.

CPython takes bytecode for that of a source file if the second of its last change and its size are the same (see "Cached
bytecode invalidation" in the language reference). Steps take milliseconds: an edited module that is imported again would be the
one before the edit. So bytecode of files that have just changed is valid for their content instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from typing import Any

__all__ = ["distrust_bytecode_of_recent_files"]

_RECENT_SECONDS = 2.0
"""Above the resolution of the recorded times, which is a second."""

_NEVER = 0
_CHECKED_HASH = (0b11).to_bytes(4, "little")
"""Flags of bytecode that is valid for a source file with the same content (see PEP 552)."""

_stat, _now = os.stat, time.time


def distrust_bytecode_of_recent_files() -> None:
    """Let imports compare files that have changed in the last two seconds by content. Idempotent."""
    loader: Any = SourceFileLoader
    if hasattr(loader.path_stats, "__wrapped__"):
        return
    path_stats, cache_bytecode = loader.path_stats, loader._cache_bytecode

    def path_stats_of_recent(self: Any, path: str) -> Mapping[str, Any]:
        stats: Mapping[str, Any] = path_stats(self, path)
        return {**stats, "mtime": _NEVER} if _is_recent(stats["mtime"]) else stats

    def cache_with_hash(self: Any, source_path: str, bytecode_path: str, data: bytes) -> None:
        if _is_recent(_stat(source_path).st_mtime):
            header = MAGIC_NUMBER + _CHECKED_HASH + source_hash(self.get_data(source_path))
            data = header + data[len(header) :]
        cache_bytecode(self, source_path, bytecode_path, data)

    path_stats_of_recent.__wrapped__ = path_stats  # type: ignore[attr-defined]
    loader.path_stats, loader._cache_bytecode = path_stats_of_recent, cache_with_hash


def _is_recent(changed: float) -> bool:
    """Return whether a file may change again without a trace in the recorded times, or claims to be from the future."""
    return _now() - changed < _RECENT_SECONDS
