"""Images with additional packages: derived from another image once, with network access, and named by content hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import docker
from docker.errors import DockerException
from docker.models.containers import Container
from docker.models.images import Image

from coding_gym.errors import PackageInstallError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.builds import build_lock, image_exists
from coding_gym.sandbox.docker.images import IMAGE_REPOSITORY, ensure_image, image_name
from coding_gym.sandbox.ownership import LABEL_OWNER, OwnerProcess
from coding_gym.sandbox.packages import resolve_packages
from coding_gym.sandbox.single_flight import SingleFlight
from coding_gym.waiting import waiting_for
from coding_gym_server.languages import distributions_of, packages_of, preparations_of
from coding_gym_server.packages.install import LOG_LINES, reason_of
from coding_gym_server.packages.system import THEN, reason_of_apt

__all__ = ["ensure_image_with_packages", "ensure_packages", "ensure_system_packages"]

_COMMIT_TIMEOUT = 1800

_log = logging.getLogger("coding_gym")
_single_flight: SingleFlight[None] = SingleFlight()


@dataclass(frozen=True)
class _Installer:
    """A program in the image that installs packages.

    Attributes:
        name: Its name in messages.
        module: The module that runs it.
        capabilities: What it needs as root.
        reason: Returns the lines of its output that explain a failure.
        options: Arguments before the names of packages.
    """

    name: str
    module: str
    capabilities: tuple[str, ...]
    reason: Callable[[list[str]], list[str]]
    options: tuple[str, ...] = ()


_PIP = _Installer("pip", "coding_gym_server.packages.install", (), reason_of)
_APT = _Installer(
    "apt-get",
    "coding_gym_server.packages.system",
    # It gives files to users, and drops its own privileges for downloads.
    ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID"),
    reason_of_apt,
)


def ensure_image_with_packages(client: docker.DockerClient, config: SandboxConfig) -> str:
    """Return the name of the image of a configuration with its packages; those that do not exist are made.

    Raises:
        ImageBuildError: If the image build fails.
        PackageInstallError: If pip or apt-get fails; nothing is left behind.
    """
    image = ensure_image(client, config.image)
    image = ensure_system_packages(client, image, config.system_packages)
    image = _ensure(client, image, packages_of(config.languages), _installer_of(config.languages))
    return ensure_packages(client, image, (*resolve_packages(config).requirements, *distributions_of(config.languages)))


def ensure_packages(client: docker.DockerClient, base: str, requirements: Sequence[str]) -> str:
    """Return the name of an image with the packages, derived from ``base`` if necessary; ``base`` if there are none.

    Raises:
        PackageInstallError: If pip fails; nothing is left behind.
    """
    return _ensure(client, base, requirements, _PIP)


def ensure_system_packages(client: docker.DockerClient, base: str, names: Sequence[str]) -> str:
    """Return the name of an image with the Debian packages, like ``ensure_packages``.

    Raises:
        PackageInstallError: If apt-get fails; nothing is left behind.
    """
    return _ensure(client, base, names, _APT)


def _installer_of(languages: Sequence[str]) -> _Installer:
    # The table of languages has all that they need; what R recommends is TeX.
    options = ("--no-install-recommends", *(f"{THEN}{command}" for command in preparations_of(languages)))
    return replace(_APT, options=options)


def _ensure(client: docker.DockerClient, base: str, names: Sequence[str], installer: _Installer) -> str:
    if not names:
        return base
    image = client.images.get(base)
    name = _name(image, base, names, installer)
    if not image_exists(client, name):
        _single_flight(name, lambda: _make_if_missing(client, image, name, names, installer))
    return name


def _make_if_missing(client: docker.DockerClient, base: Image, name: str, names: Sequence[str], installer: _Installer) -> None:
    with build_lock("packages"):
        if not image_exists(client, name):
            with waiting_for(f"installing {', '.join(names)} into the image {name} (once)", _log):
                _make(client, base, name, names, installer)


def _make(client: docker.DockerClient, base: Image, name: str, names: Sequence[str], installer: _Installer) -> None:
    """Run an installer in a container and commit it: a failed Dockerfile build would leave the layers of its earlier steps."""
    with _container(client, base, names, installer) as container:
        container.start()
        status = container.wait(timeout=None)["StatusCode"]
        if status != 0:
            log = container.logs().decode(errors="replace").splitlines()
            raise PackageInstallError(names, installer.reason(log), log[-LOG_LINES:], installer=installer.name)
        repository, _, tag = name.rpartition(":")
        with _extended_timeout(client):
            container.commit(repository, tag, changes=_configuration_of(base))


@contextlib.contextmanager
def _container(client: docker.DockerClient, base: Image, names: Sequence[str], installer: _Installer) -> Iterator[Container]:
    container = client.containers.create(
        base,
        [*installer.options, *names],
        entrypoint=["python", "-P", "-m", installer.module],
        user="0",
        # So that other processes clean it up if this one is killed.
        labels={LABEL_OWNER: str(OwnerProcess.current())},
        cap_drop=["ALL"],
        cap_add=list(installer.capabilities),
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "exec,mode=1777"},
    )
    try:
        yield container
    finally:
        with contextlib.suppress(DockerException):
            container.remove(force=True, v=True)


def _configuration_of(base: Image) -> list[str]:
    """Return the instructions that restore the base image's configuration, which the container overrides."""
    config = base.attrs["Config"]
    return [
        f"USER {config.get('User') or '0'}",
        f"ENTRYPOINT {json.dumps(config.get('Entrypoint') or [])}",
        f"CMD {json.dumps(config.get('Cmd') or [])}",
        f"LABEL {LABEL_OWNER}=",
    ]


def _name(image: Image, base: str, names: Sequence[str], installer: _Installer) -> str:
    kind = () if installer is _PIP else (installer.name, *installer.options)
    digest = hashlib.sha256("\0".join((str(image.id), *kind, *sorted(names))).encode()).hexdigest()[:12]
    # Images derived from the default image become unused together with it, see ``coding-gym prune --images``.
    return f"{base}-{digest}" if base.startswith(image_name()) else f"{IMAGE_REPOSITORY}:with-packages-{digest}"


@contextlib.contextmanager
def _extended_timeout(client: docker.DockerClient) -> Iterator[None]:
    """Raise the engine's timeout: a commit of many gigabytes takes long."""
    usual, client.api.timeout = client.api.timeout, _COMMIT_TIMEOUT
    try:
        yield
    finally:
        client.api.timeout = usual
