"""The default image of the docker provider: built from this package's sources, and named by their hash."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import docker
from docker.errors import DockerException
from docker.utils import parse_repository_tag

import coding_gym_server
from coding_gym.errors import ImageBuildError
from coding_gym.sandbox.docker.builds import build_lock, build_logged, image_exists
from coding_gym.sandbox.docker.dockerfiles import built_image
from coding_gym.waiting import waiting_for

__all__ = ["IMAGE_REPOSITORY", "build_image", "ensure_image", "image_name", "tag_image"]

_log = logging.getLogger("coding_gym")

IMAGE_REPOSITORY = "coding-gym/sandbox"

_BUILD_FILES = ("Dockerfile", "pyproject.toml", "requirements.txt", "requirements-gui.txt")
_NO_ARGUMENTS: Mapping[str, str] = MappingProxyType({})
_LOG_LINES = 20
_NEXT_STEP = (
    "Building needs debian:trixie-slim, Debian's packages and PyPI: check that the engine reaches them, "
    "then run 'coding-gym build-image' to see the whole log."
)


def image_name(arguments: Mapping[str, str] = _NO_ARGUMENTS) -> str:
    """Return the name of the image, which identifies the sources and the build arguments.

    Args:
        arguments: Build arguments of the Dockerfile.
    """
    digest = hashlib.sha256()
    for name, content in sorted(_sources().items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    name = f"{IMAGE_REPOSITORY}:{coding_gym_server.__version__}-{digest.hexdigest()[:12]}"
    if not arguments:
        return name
    return f"{name}-with-{hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:12]}"


def ensure_image(client: docker.DockerClient, image: str | None) -> str:
    """Return the name of an existing image: the given one, pulled if necessary, or the default one, built if necessary.

    Args:
        client: The engine.
        image: Its name, or the absolute path of a directory with a Dockerfile, or of a Dockerfile, which is built if necessary.

    Raises:
        ConfigurationError: If there is no such Dockerfile.
        ImageBuildError: If it does not exist, and cannot be pulled or built.
    """
    if image is not None and image.startswith("/"):
        return built_image(client, Path(image))
    name = image or image_name()
    if image_exists(client, name):
        return name
    if image is None:
        with waiting_for(f"building the image {name} (once, takes a few minutes)", _log):
            return build_image(client)
    try:
        with waiting_for(f"pulling the image {image} (once)", _log):
            client.images.pull(image)
    except DockerException as error:
        message = f"Image {image!r} not found, and it cannot be pulled. Build it, or omit image= to use the default image."
        raise ImageBuildError(message, [str(error)]) from error
    return image


def build_image(
    client: docker.DockerClient,
    *,
    arguments: Mapping[str, str] = _NO_ARGUMENTS,
    on_line: Callable[[str], None] | None = None,
    force: bool = False,
) -> str:
    """Build the image unless it exists, and return its name.

    Args:
        client: The engine.
        arguments: Build arguments of the Dockerfile, such as ``{"WITH_OPENGL": "1"}``.
        on_line: Called with each line of the build log.
        force: Whether to build it even if it exists, without the build cache.

    Raises:
        ValueError: If the Dockerfile has no such argument.
        ImageBuildError: If the build fails; the error shows the end of the log.
    """
    known = re.findall(r"^ARG (\w+)", _sources()["Dockerfile"].decode(), re.MULTILINE)
    unknown = sorted(arguments.keys() - set(known))
    if unknown:
        message = f"The image has no build argument {unknown[0]!r}. It has {', '.join(sorted(known))}."
        raise ValueError(message)
    name = image_name(arguments)
    with build_lock("build"):
        if force or not image_exists(client, name):
            options = {"fileobj": _context(), "custom_context": True, "buildargs": dict(arguments), "nocache": force}
            build_logged(client, name, f"The image {name}", hint=_NEXT_STEP, on_line=on_line, **options)
    return name


def tag_image(client: docker.DockerClient, name: str, tag: str) -> str:
    """Give an image an additional name, and return that."""
    client.api.tag(name, *parse_repository_tag(tag))
    return tag


def _context() -> io.BytesIO:
    """Return the build context as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted(_sources().items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    archive.seek(0)
    return archive


def _sources() -> dict[str, bytes]:
    """Return the files of the build context: in a checkout from ``server_image/``, else as installed by the wheel."""
    package = Path(coding_gym_server.__file__).parent
    installed = Path(__file__).parents[2] / "_server_image"
    directory = installed if installed.is_dir() else package.parent
    sources = {name: (directory / name).read_bytes() for name in _BUILD_FILES}
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            sources[f"coding_gym_server/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    return sources
