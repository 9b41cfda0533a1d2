"""What tests do to containers from outside."""

from __future__ import annotations

import docker.errors
from docker.models.containers import Container

from tests.support.timing import eventually

__all__ = ["pause"]


def pause(container: Container) -> None:
    """Pause a container; with control groups of version 1, the engine sometimes fails to freeze processes that are busy."""

    def try_to() -> bool:
        try:
            container.pause()
        except docker.errors.APIError as error:
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    assert eventually(try_to)
