"""Images with packages: made of another image once, with the network, and named by what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence

import docker
from docker.errors import DockerException, ImageNotFound
from docker.models.containers import Container
from docker.models.images import Image

from coding_gym.errors import PackageInstallError
from coding_gym.providers.image import IMAGE_REPOSITORY, image_name, only_one_build
from coding_gym.providers.once import Once
from coding_gym.providers.owner import LABEL_OWNER, Owner
from coding_gym_server.installation import InstallationError

__all__ = ["ensure_packages"]

_INSTALLER = ("python", "-P", "-m", "coding_gym_server.installation")
_COMMIT_TIMEOUT = 1800

_log = logging.getLogger("coding_gym")
_once: Once[None] = Once()


def ensure_packages(client: docker.DockerClient, base: str, requirements: Sequence[str]) -> str:
    """Return the name of an image that has the packages, making it of ``base`` if need be; ``base`` without packages.

    Raises:
        PackageInstallError: pip refused; nothing is left.
    """
    if not requirements:
        return base
    image = client.images.get(base)
    name = _name(image, base, requirements)
    if _exists(client, name):
        return name
    _once(name, lambda: _make_if_missing(client, image, name, requirements))
    return name


def _make_if_missing(client: docker.DockerClient, base: Image, name: str, requirements: Sequence[str]) -> None:
    with only_one_build("packages"):
        if not _exists(client, name):
            _log.warning("installing %s into the image %s: once", ", ".join(requirements), name)
            _make(client, base, name, requirements)


def _make(client: docker.DockerClient, base: Image, name: str, requirements: Sequence[str]) -> None:
    """Run pip in a container and keep what came of it: a step of a Dockerfile that fails would leave the steps before it."""
    with _container(client, base, requirements) as container:
        container.start()
        status = container.wait(timeout=None)["StatusCode"]
        if status != 0:
            log = container.logs().decode(errors="replace").splitlines()
            error = InstallationError(log)
            raise PackageInstallError(requirements, str(error).splitlines(), error.log)
        repository, _, tag = name.rpartition(":")
        with _patience(client):
            container.commit(repository, tag, changes=_as_configured(base))


@contextlib.contextmanager
def _container(client: docker.DockerClient, base: Image, requirements: Sequence[str]) -> Iterator[Container]:
    container = client.containers.create(
        base,
        list(requirements),
        entrypoint=list(_INSTALLER),
        user="0",
        # Whoever sweeps removes it, should this process be killed.
        labels={LABEL_OWNER: str(Owner.current())},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "exec,mode=1777"},
    )
    try:
        yield container
    finally:
        with contextlib.suppress(DockerException):
            container.remove(force=True, v=True)


def _as_configured(base: Image) -> list[str]:
    """Return the instructions that put back what the container had otherwise than the image."""
    config = base.attrs["Config"]
    return [
        f"USER {config.get('User') or '0'}",
        f"ENTRYPOINT {json.dumps(config.get('Entrypoint') or [])}",
        f"CMD {json.dumps(config.get('Cmd') or [])}",
        f"LABEL {LABEL_OWNER}=",
    ]


def _name(image: Image, base: str, requirements: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join((str(image.id), *sorted(requirements))).encode()).hexdigest()[:12]
    # Ours go when their base goes out of use, see ``coding-gym prune --images``.
    return f"{base}-{digest}" if base == image_name() else f"{IMAGE_REPOSITORY}:with-packages-{digest}"


def _exists(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


@contextlib.contextmanager
def _patience(client: docker.DockerClient) -> Iterator[None]:
    """Let the engine take its time with many gigabytes."""
    usual, client.api.timeout = client.api.timeout, _COMMIT_TIMEOUT
    try:
        yield
    finally:
        client.api.timeout = usual
