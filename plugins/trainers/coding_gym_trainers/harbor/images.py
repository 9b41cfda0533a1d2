"""Images of Harbor's tasks: the directories that tasks write to become links into the workspace, for the root is read-only.

What an image has in the directories that sessions cover by their own is copied into them.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import docker
from docker.errors import APIError, BuildError

from coding_gym.errors import ImageBuildError
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.images import ensure_image, image_exists

__all__ = ["TaskImage", "build_task", "linked_image"]

_REPOSITORY = "coding-gym/harbor"
_SHOWN_LINES = 20
_LINKED = ("/logs", "/tests", "/solution", "/runtime")
_TARGETS = PurePosixPath("/home/user/.harbor")
"""In the workspace of the session: not in ``/tmp``, which agents empty."""
_ORIGINALS = PurePosixPath("/opt/harbor")
_COVERED = ("/tmp", "/home/user")
_PLACES_OF_SESSIONS = ("/", "/workspaces", "/home/user")
"""Working directories that mean that of the session: the root, and those of the default image."""


@dataclass(frozen=True)
class TaskImage:
    """An image whose sessions have the directories of a task.

    Attributes:
        name: Name of the image.
        workdir: Working directory, None for that of the session.
    """

    name: str
    workdir: str | None

    @property
    def begin(self) -> str:
        """Script that gives a new session the files that the image has in its directories, and in the targets of the links."""
        targets = {path: path for path in _COVERED} | {path: _inside(_TARGETS, path) for path in _linked(self.workdir)}
        script = ["set -e"]
        for path, target in targets.items():
            script.append(f"mkdir -p {shlex.quote(target)}")
            script.append(_copy_if_there(_inside(_ORIGINALS, path), target))
        if self.workdir is not None:
            script.append(f"mkdir -p {shlex.quote(self.workdir)}")
        return "\n".join(script)

    def place(self, path: str | PurePosixPath) -> str:
        """Return where a path of the task leads: a link itself can be neither removed nor, if its target was, created."""
        path = PurePosixPath(path)
        for link in map(PurePosixPath, _linked(self.workdir)):
            if path.is_relative_to(link):
                return str(PurePosixPath(_inside(_TARGETS, str(link))) / path.relative_to(link))
        return str(path)


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
        raise _build_error(tag, error) from error
    finally:
        client.close()
    return tag


def linked_image(base: str | None, workdir: str | None) -> TaskImage:
    """Derive an image with links from another one, unless it exists.

    Args:
        base: The other image; the default one if None.
        workdir: Working directory; that of the other image if None.

    Raises:
        ImageBuildError: If an image does not build.
        ProviderUnavailableError: If there is no engine.
    """
    client = connect_to_engine()
    try:
        image = client.images.get(ensure_image(client, base))
        workdir = workdir or image.attrs["Config"].get("WorkingDir") or "/"
        found = None if workdir in _PLACES_OF_SESSIONS else workdir
        dockerfile = _dockerfile(str(image.id), _linked(found))
        tag = f"{_REPOSITORY}:linked-{hashlib.sha256(dockerfile.encode()).hexdigest()[:12]}"
        if not image_exists(client, tag):
            _build_linked(client, dockerfile, tag)
    finally:
        client.close()
    return TaskImage(tag, found)


def _build_linked(client: docker.DockerClient, dockerfile: str, tag: str) -> None:
    try:
        client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=tag, rm=True, forcerm=True)
    except (BuildError, APIError) as error:
        raise _build_error(tag, error) from error


def _dockerfile(base: str, paths: Iterable[str]) -> str:
    commands = ["set -e"]
    for path in _COVERED:
        original = _inside(_ORIGINALS, path)
        commands += [f"mkdir -p {shlex.quote(original)}", _copy_if_there(path, original)]
    for path in paths:
        source, original = shlex.quote(path), shlex.quote(_inside(_ORIGINALS, path))
        commands.append(f"mkdir -p {shlex.quote(str(PurePosixPath(path).parent))} {_ORIGINALS}")
        commands.append(f"if [ -d {source} ]; then mv {source} {original}; fi")
        commands.append(f"ln -s {shlex.quote(_inside(_TARGETS, path))} {source}")
    # Sessions are not root, whose files the task expects to read. The init of the image is executable only.
    commands.append("find / -xdev \\( -type d ! -perm -005 -o -type f ! -perm /005 \\) -exec chmod a+rX {} +")
    return f"FROM {base}\nUSER 0\nWORKDIR /\nRUN {json.dumps(['/bin/sh', '-c', '; '.join(commands)])}\n"


def _linked(workdir: str | None) -> tuple[str, ...]:
    if workdir is None or workdir in _LINKED or any(PurePosixPath(workdir).is_relative_to(place) for place in _COVERED):
        return _LINKED
    return (*_LINKED, workdir)


def _copy_if_there(source: str, target: str) -> str:
    source, target = shlex.quote(source), shlex.quote(target)
    return f"if [ -d {source} ]; then cp -R --preserve=mode,timestamps,links {source}/. {target}; fi"


def _inside(directory: PurePosixPath, path: str) -> str:
    return str(directory / path.strip("/").replace("/", "-"))


def _build_error(tag: str, error: BuildError | APIError) -> ImageBuildError:
    events = getattr(error, "build_log", ())
    log = [line for event in events if (line := str(event.get("stream") or event.get("error") or "").rstrip())]
    return ImageBuildError(f"The image {tag} of the task does not build:", log[-_SHOWN_LINES:] or [str(error)])
