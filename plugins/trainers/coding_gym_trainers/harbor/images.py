"""Images of Harbor's tasks."""

from __future__ import annotations

from pathlib import Path

from docker.errors import APIError, BuildError

from coding_gym.errors import ImageBuildError
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.images import ensure_image

__all__ = ["build_task", "working_directory"]

_REPOSITORY = "coding-gym/harbor"
_SHOWN_LINES = 20
_PLACES_OF_SESSIONS = ("", "/", "/workspaces", "/home/user")
"""Working directories that mean that of the session: the root, and those of the default image."""


def build_task(directory: Path, name: str, *, force: bool) -> str:
    """Build the Dockerfile in a directory, and return the name of the image.

    Args:
        directory: The build context.
        name: Identifies its content.
        force: Whether to build each step again.

    Raises:
        ImageBuildError: If it does not build.
        ProviderUnavailableError: If there is no engine.
    """
    tag = f"{_REPOSITORY}:{name}"
    client = connect_to_engine()
    try:
        client.images.build(path=str(directory), tag=tag, rm=True, forcerm=True, nocache=force)
    except (BuildError, APIError) as error:
        events = getattr(error, "build_log", ())
        log = [line for event in events if (line := str(event.get("stream") or event.get("error") or "").rstrip())]
        message = f"The image {tag} of the task does not build:"
        raise ImageBuildError(message, log[-_SHOWN_LINES:] or [str(error)]) from error
    finally:
        client.close()
    return tag


def working_directory(image: str | None) -> str | None:
    """Return the working directory of an image, None for that of a session.

    Args:
        image: Name of the image, which is pulled if necessary; the default one if None.

    Raises:
        ImageBuildError: If it cannot be pulled.
        ProviderUnavailableError: If there is no engine.
    """
    client = connect_to_engine()
    try:
        directory = client.images.get(ensure_image(client, image)).attrs["Config"].get("WorkingDir") or ""
    finally:
        client.close()
    return None if directory in _PLACES_OF_SESSIONS else str(directory)
