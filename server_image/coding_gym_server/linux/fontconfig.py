"""Matplotlib's font cache: without a writable directory for it, matplotlib scans all fonts at every start."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["prepare", "writable_copy"]

_DIRECTORY = "matplotlib"
_VARIABLE = "MPLCONFIGDIR"


def prepare(base: Path) -> Path:
    """Create matplotlib's directory below ``base`` with a copy of the existing font cache; return the directory."""
    directory = base / _DIRECTORY
    directory.mkdir(mode=0o755, exist_ok=True)
    # A user without a home directory has no cache.
    _copy(Path(os.environ.get(_VARIABLE) or os.path.expanduser("~/.cache/matplotlib")), directory)
    return directory


@contextlib.contextmanager
def writable_copy() -> Iterator[None]:
    """Let the block import matplotlib with its directory's font cache, which it ignores in a directory that it cannot write."""
    directory = os.environ.get(_VARIABLE)
    if directory is None or os.access(directory, os.W_OK):
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            copy = stack.enter_context(tempfile.TemporaryDirectory(prefix="matplotlib-"))
            _copy(Path(directory), Path(copy))
            stack.callback(os.environ.__setitem__, _VARIABLE, directory)
            os.environ[_VARIABLE] = copy
        yield


def _copy(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        for cache in source.glob("fontlist-*.json"):
            shutil.copy(cache, target)
