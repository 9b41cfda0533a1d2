"""The server for containers of any image: a volume of the engine, with an interpreter and libraries of its own.

See ``coding_gym_server.packages.runtime``, which makes it out of the default image.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import docker
from docker.errors import DockerException, NotFound
from docker.models.images import Image

from coding_gym.errors import ImageBuildError, SandboxStartError
from coding_gym.sandbox.docker.builds import build_lock
from coding_gym.sandbox.docker.images import ensure_image, image_name
from coding_gym.sandbox.ownership import LABEL_OWNER, OwnerProcess
from coding_gym.waiting import waiting_for
from coding_gym_server.protocol import ImageSettings

__all__ = ["ENTRY_POINT", "RUNTIME_PREFIX", "ensure_runtime", "environment_beside", "runtime_name", "settings_of"]

RUNTIME_PREFIX = "coding-gym-runtime-"
_COMPLETE = ".complete"
"""Suffix of the name of an empty volume that exists if the other one is complete: a volume cannot be changed or renamed."""

_DIRECTORY = "/.coding-gym"
"""Below no directory, since images may have links in place of directories such as ``/opt``."""

ENTRY_POINT = (
    f"{_DIRECTORY}/python/bin/tini",
    "--",
    *(f"{_DIRECTORY}/venv/bin/python3", "-P", "-m", "coding_gym_server", "--container"),
)
_ENVIRONMENT: Mapping[str, str] = {
    "MPLCONFIGDIR": f"{_DIRECTORY}/matplotlib",
    "LANG": "C.UTF-8",
    "TINI_VERBOSITY": "0",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OWN_ENVIRONMENT = "/opt/coding-gym/venv"
_LOG_LINES = 20

_log = logging.getLogger("coding_gym")


def settings_of(client: docker.DockerClient, name: str) -> ImageSettings | None:
    """Return what an image sets for its programs, or None if it is based on the default image, and has the server.

    Raises:
        SandboxStartError: If it is for another machine.
    """
    image = client.images.get(name)
    config = image.attrs.get("Config") or {}
    environment = dict(item.partition("=")[::2] for item in config.get("Env") or ())
    if f"{_OWN_ENVIRONMENT}/bin" in environment.get("PATH", "").split(":"):
        return None
    _check_machine(client, image, name)
    return ImageSettings(environment=environment, user=config.get("User") or "", directory=config.get("WorkingDir") or "")


def _check_machine(client: docker.DockerClient, image: Image, name: str) -> None:
    found, expected = image.attrs.get("Architecture"), client.version().get("Arch")
    if found and expected and found != expected:
        message = (
            f"The image {name!r} is for {found}, and the engine runs programs for {expected}: pull or build it for {expected}"
        )
        raise SandboxStartError(message)


def environment_beside(image: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment variables of a server in a container of another image; those that are None are removed.

    Args:
        image: Environment variables of the image, of which it takes the ``PATH`` only.
    """
    path = f"{_DIRECTORY}/venv/bin:{image.get('PATH', _PATH)}"
    return {**dict.fromkeys(image), **_ENVIRONMENT, "PATH": path}


def runtime_name() -> str:
    """Return the name of the runtime's volume, which identifies its sources."""
    return RUNTIME_PREFIX + image_name().rpartition(":")[2]


def ensure_runtime(client: docker.DockerClient) -> str:
    """Return a volume and its mount point, as in ``docker run --volume``, after making it if necessary.

    Raises:
        ImageBuildError: If the default image, which it is made of, cannot be built, or the runtime cannot be made.
    """
    name = runtime_name()
    with build_lock("runtime"):
        if not (_exists(client, name) and _exists(client, name + _COMPLETE)):
            image = ensure_image(client, None)
            with waiting_for(f"making the server for other images, the volume {name} (once)", _log):
                _make(client, image, name)
    return f"{name}:{_DIRECTORY}:ro"


def _exists(client: docker.DockerClient, name: str) -> bool:
    try:
        client.volumes.get(name)
    except NotFound:
        return False
    return True


def _make(client: docker.DockerClient, image: str, name: str) -> None:
    # One that was interrupted.
    for left in (name + _COMPLETE, name):
        with contextlib.suppress(NotFound):
            client.volumes.get(left).remove()
    client.volumes.create(name)
    container = client.containers.create(
        image,
        [_DIRECTORY],
        entrypoint=["python", "-P", "-m", "coding_gym_server.packages.runtime"],
        user="0",
        # So that other processes clean it up if this one is killed.
        labels={LABEL_OWNER: str(OwnerProcess.current())},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
        volumes={name: {"bind": _DIRECTORY, "mode": "rw"}},
    )
    try:
        container.start()
        if container.wait(timeout=None)["StatusCode"] != 0:
            message = "The server for other images cannot be made of the default image. The log ends:"
            raise ImageBuildError(message, container.logs().decode(errors="replace").splitlines()[-_LOG_LINES:])
    finally:
        with contextlib.suppress(DockerException):
            container.remove(force=True)
    client.volumes.create(name + _COMPLETE)
