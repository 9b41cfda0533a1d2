"""The image of the docker provider: built from this package's own sources, named by their hash."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import logging
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound

import coding_gym_server
from coding_gym.errors import ImageBuildError

__all__ = ["IMAGE_REPOSITORY", "build_image", "ensure_image", "image_name", "only_one_build"]

_log = logging.getLogger("coding_gym")

IMAGE_REPOSITORY = "coding-gym/sandbox"

_BUILD_FILES = ("Dockerfile", "pyproject.toml", "requirements.txt")
_LOG_LINES = 20
_NEXT_STEP = (
    "Building needs debian:trixie-slim, Debian's packages and PyPI: check that the engine reaches them, "
    "then run 'coding-gym build-image' to see the whole log."
)


def image_name() -> str:
    """Return the name of the image of exactly these sources: another server is another image."""
    digest = hashlib.sha256()
    for name, content in sorted(_sources().items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{IMAGE_REPOSITORY}:{coding_gym_server.__version__}-{digest.hexdigest()[:12]}"


def ensure_image(client: docker.DockerClient, image: str | None) -> str:
    """Return the name of an image that is there: the given one, pulled if need be, or our own, built if need be.

    Raises:
        ImageBuildError: It is not there and could not be had.
    """
    name = image or image_name()
    with contextlib.suppress(ImageNotFound):
        client.images.get(name)
        return name
    if image is None:
        _log.warning("building the image %s: once, in about a minute", name)
        return build_image(client)
    try:
        client.images.pull(image)
    except DockerException as error:
        message = f"There is no image {image!r}, and it cannot be pulled. Build it, or leave image= out to use our own."
        raise ImageBuildError(message, [str(error)]) from error
    return image


def build_image(client: docker.DockerClient, *, on_line: Callable[[str], None] | None = None, force: bool = False) -> str:
    """Build the image, unless it is there already; returns its name.

    Args:
        client: The engine.
        on_line: Called with each line of the build's log.
        force: Whether to build it even if it is there, from the first step on.

    Raises:
        ImageBuildError: It does not build; the error shows the end of the log.
    """
    name = image_name()
    with only_one_build("build"):
        if not force:
            with contextlib.suppress(ImageNotFound):
                client.images.get(name)
                return name
        log: list[str] = []
        try:
            for line in _build(client, name, no_cache=force):
                log.append(line)
                if on_line is not None:
                    on_line(line)
        except (APIError, _BuildFailed) as error:
            log.append(str(error))
            message = f"The image {name} does not build. {_NEXT_STEP} The log ends:"
            raise ImageBuildError(message, log[-_LOG_LINES:]) from error
    return name


class _BuildFailed(Exception):
    """A step of the Dockerfile failed."""


def _build(client: docker.DockerClient, name: str, *, no_cache: bool) -> Iterator[str]:
    events = client.api.build(
        fileobj=_context(), custom_context=True, tag=name, rm=True, forcerm=True, nocache=no_cache, decode=True
    )
    error = None
    # To the end even after an error, or the SDK leaves the connection open.
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
    """Return all that goes into the image: in a checkout from ``server_image/``, else as the wheel installed it."""
    package = Path(coding_gym_server.__file__).parent
    installed = Path(__file__).parent.parent / "_server_image"
    directory = installed if installed.is_dir() else package.parent
    sources = {name: (directory / name).read_bytes() for name in _BUILD_FILES}
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            sources[f"coding_gym_server/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    return sources


@contextlib.contextmanager
def only_one_build(kind: str) -> Iterator[None]:
    """Let one process of this user build at a time, of each kind: the others wait, and find the image."""
    path = Path(tempfile.gettempdir()) / f"coding-gym-{kind}-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
