"""Images that tests have built from directories, of which other tests may have some at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from coding_gym.sandbox.docker.dockerfiles import built_name

__all__ = ["removed_afterwards"]


@contextlib.contextmanager
def removed_afterwards(engine: Any, *directories: Path) -> Iterator[None]:
    """Remove the images of directories at the end of a block, as far as they have been built."""
    try:
        yield
    finally:
        for directory in directories:
            with contextlib.suppress(ImageNotFound):
                engine.images.remove(built_name(directory), force=True)
