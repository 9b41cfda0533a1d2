"""Images that tests have built from directories, of which other tests may have some at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.docker.dockerfiles import built_name

__all__ = ["removed_afterwards"]


@contextlib.contextmanager
def removed_afterwards(engine: Any, *directories: Path) -> Iterator[None]:
    """Remove the images of directories as they are before and after a block, as far as they have been built."""
    names = set(_names(directories))
    try:
        yield
    finally:
        for name in names.union(_names(directories)):
            with contextlib.suppress(ImageNotFound):
                engine.images.remove(name, force=True)


def _names(directories: Iterable[Path]) -> Iterator[str]:
    for directory in directories:
        with contextlib.suppress(ConfigurationError):
            yield built_name(directory)
