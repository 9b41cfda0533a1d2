"""Images of directories with a Dockerfile: built once per engine, and named by the hash of their files."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.utils.build import exclude_paths

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.docker.builds import build_lock, build_logged, image_exists
from coding_gym.sandbox.single_flight import SingleFlight
from coding_gym.waiting import waiting_for

__all__ = ["BUILT_REPOSITORY", "built_image", "built_name"]

_log = logging.getLogger("coding_gym")

BUILT_REPOSITORY = "coding-gym/built"
_single_flight: SingleFlight[None] = SingleFlight()


def built_image(
    client: docker.DockerClient, path: Path, *, force: bool = False, on_line: Callable[[str], None] | None = None
) -> str:
    """Return the name of the image of a Dockerfile, after building it unless it exists.

    Args:
        client: The engine.
        path: A directory with a ``Dockerfile``, or a Dockerfile, whose directory is the build context.
        force: Whether to build it even if it exists, without the build cache.
        on_line: Called with each line of the build log.

    Raises:
        ConfigurationError: If there is no Dockerfile.
        ImageBuildError: If it does not build; the error shows the end of the log.
    """
    name = built_name(path)
    if force or not image_exists(client, name):
        _single_flight(name, lambda: _build(client, _dockerfile(path), name, on_line, force=force))
    return name


def built_name(path: Path) -> str:
    """Return the name of the image of a Dockerfile, whether it is built or not.

    Args:
        path: As for ``built_image``.

    Raises:
        ConfigurationError: If there is no Dockerfile.
    """
    return f"{BUILT_REPOSITORY}:{_digest_of(_dockerfile(path))}"


def _dockerfile(path: Path) -> Path:
    file = path / "Dockerfile" if path.is_dir() else path
    if not file.is_file():
        message = f"Expected image= to be the name of an image, or a directory with a Dockerfile; there is no {file}"
        raise ConfigurationError(message)
    return file


def _build(client: docker.DockerClient, file: Path, name: str, on_line: Callable[[str], None] | None, *, force: bool) -> None:
    # A few builds at a time, rather than a lock for each image that ever was.
    with build_lock(f"built-{name[-1]}"):
        if force or not image_exists(client, name):
            what = f"The image of {file}"
            with waiting_for(f"building the image of {file} (once)", _log):
                options: dict[str, Any] = {"path": str(file.parent), "dockerfile": file.name, "nocache": force}
                build_logged(client, name, what, on_line=on_line, **options)


def _digest_of(file: Path) -> str:
    """Return what identifies the content of a build context, without what its ``.dockerignore`` names."""
    root = file.parent
    ignored = root / ".dockerignore"
    lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.exists() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    digest = hashlib.sha256(f"{file.name}\0".encode())
    for name in sorted(exclude_paths(str(root), patterns, dockerfile=file.name)):
        path = root / name
        status = path.lstat()
        digest.update(f"{name}\0{status.st_mode:o}\0".encode(errors="surrogateescape"))
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        elif stat.S_ISLNK(status.st_mode):
            digest.update(os.fsencode(path.readlink()))
    return digest.hexdigest()[:16]
