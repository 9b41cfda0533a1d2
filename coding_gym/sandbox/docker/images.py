"""The default image of the docker provider: built from this package's sources, and named by their hash."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import logging
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

import coding_gym_server
from coding_gym.errors import ImageBuildError
from coding_gym.waiting import waiting_for

__all__ = ["IMAGE_REPOSITORY", "build_image", "build_lock", "ensure_image", "image_exists", "image_name"]

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

    Raises:
        ImageBuildError: If it does not exist, and cannot be pulled or built.
    """
    name = image or image_name()
    if image_exists(client, name):
        return name
    if image is None:
        with waiting_for(f"building the image {name} (once, takes a few minutes)", _log):
            return build_image(client)
    try:
        client.images.pull(image)
    except DockerException as error:
        message = f"Image {image!r} not found, and it cannot be pulled. Build it, or omit image= to use the default image."
        raise ImageBuildError(message, [str(error)]) from error
    return image


def build_image(
    client: docker.DockerClient,
    *,
    arguments: Mapping[str, str] = _NO_ARGUMENTS,
    tag: str | None = None,
    on_line: Callable[[str], None] | None = None,
    force: bool = False,
) -> str:
    """Build the image unless it exists, and return its name.

    Args:
        client: The engine.
        arguments: Build arguments of the Dockerfile, such as ``{"WITH_OPENGL": "1"}``.
        tag: An additional name, which is then returned.
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
            _build_logged(client, name, arguments, on_line=on_line, no_cache=force)
    if tag is None:
        return name
    client.api.tag(name, *parse_repository_tag(tag))
    return tag


def image_exists(client: docker.DockerClient, name: str) -> bool:
    """Return whether the engine has an image of this name."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _build_logged(
    client: docker.DockerClient,
    name: str,
    arguments: Mapping[str, str],
    *,
    on_line: Callable[[str], None] | None,
    no_cache: bool,
) -> None:
    log: list[str] = []
    try:
        for line in _build(client, name, arguments, no_cache=no_cache):
            log.append(line)
            if on_line is not None:
                on_line(line)
    except (APIError, _BuildFailed) as error:
        log.append(str(error))
        message = f"The image {name} failed to build. {_NEXT_STEP} The log ends:"
        raise ImageBuildError(message, log[-_LOG_LINES:]) from error


class _BuildFailed(Exception):
    """Failure of a step of the Dockerfile."""


def _build(client: docker.DockerClient, name: str, arguments: Mapping[str, str], *, no_cache: bool) -> Iterator[str]:
    events = client.api.build(
        fileobj=_context(),
        custom_context=True,
        tag=name,
        buildargs=dict(arguments),
        rm=True,
        forcerm=True,
        nocache=no_cache,
        decode=True,
    )
    error = None
    # Read to the end even after an error: otherwise the SDK leaves the connection open.
    for event in events:
        error = error or event.get("error")
        yield from filter(None, map(str.rstrip, event.get("stream", event.get("status", "")).splitlines()))
    if error:
        raise _BuildFailed(error.strip())


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


@contextlib.contextmanager
def build_lock(kind: str) -> Iterator[None]:
    """Serialize the builds of each kind among the processes of this user: the others wait, and then find the image."""
    path = Path(tempfile.gettempdir()) / f"coding-gym-{kind}-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
