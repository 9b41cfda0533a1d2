"""Images of Harbor's tasks."""

from __future__ import annotations

from pathlib import Path

from coding_gym.sandbox.docker.dockerfiles import built_image
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.images import ensure_image

__all__ = ["build_task", "working_directory"]

_PLACES_OF_SESSIONS = ("", "/", "/workspaces", "/home/user")
"""Working directories that mean that of the session: the root, and those of the default image."""


def build_task(directory: Path, *, force: bool) -> str:
    """Build the Dockerfile in a directory unless there is an image of its content, and return its name.

    Args:
        directory: The build context.
        force: Whether to build each step again.

    Raises:
        ImageBuildError: If it does not build.
        ProviderUnavailableError: If there is no engine.
    """
    client = connect_to_engine()
    try:
        return built_image(client, directory, force=force)
    finally:
        client.close()


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
