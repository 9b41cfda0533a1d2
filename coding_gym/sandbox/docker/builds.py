"""Builds of images by an engine, of which the processes of this machine share the results."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound

from coding_gym.errors import ImageBuildError

__all__ = ["build_lock", "build_logged", "image_exists"]

_LOG_LINES = 20


def image_exists(client: docker.DockerClient, name: str) -> bool:
    """Return whether the engine has an image of this name."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def build_logged(
    client: docker.DockerClient,
    name: str,
    what: str,
    *,
    hint: str = "",
    on_line: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Build an image.

    Args:
        client: The engine.
        name: Name of the image.
        what: The image, as the first words of an error.
        hint: What to do after a failure.
        on_line: Called with each line of the build log.
        options: Further options of the engine's API.

    Raises:
        ImageBuildError: If the build fails; the error shows the end of the log.
    """
    log: list[str] = []
    try:
        for line in _build(client, name, options):
            log.append(line)
            if on_line is not None:
                on_line(line)
    except (DockerException, _BuildFailed) as error:
        log.append(str(error))
        message = " ".join(filter(None, (f"{what} failed to build.", hint, "The log ends:")))
        raise ImageBuildError(message, log[-_LOG_LINES:]) from error


class _BuildFailed(Exception):
    """Failure of a step of the Dockerfile."""


def _build(client: docker.DockerClient, name: str, options: Mapping[str, Any]) -> Iterator[str]:
    events = client.api.build(tag=name, rm=True, forcerm=True, decode=True, **options)
    error = None
    # Read to the end even after an error: otherwise the SDK leaves the connection open.
    for event in events:
        error = error or event.get("error")
        yield from filter(None, map(str.rstrip, event.get("stream", event.get("status", "")).splitlines()))
    if error:
        raise _BuildFailed(error.strip())


@contextlib.contextmanager
def build_lock(kind: str) -> Iterator[None]:
    """Serialize the builds of each kind among the processes of this user: the others wait, and then find the image."""
    path = Path(tempfile.gettempdir()) / f"coding-gym-{kind}-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
