"""Connections to a Docker engine, or to Podman's Docker-compatible socket."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import DockerException
from docker.utils import kwargs_from_env

from coding_gym.errors import ProviderUnavailableError

ENGINE_TIMEOUT = 60

_FIRST_WITH_WRITABLE_GROUPS = 28
_FIRST_WITH_LAYERS_IN_MEMORY = (6, 6)
"""Version of Linux from which tmpfs has the extended attributes of users."""


def connect_to_engine() -> docker.DockerClient:
    """Connect to the engine that ``DOCKER_HOST`` names, or else to the first Docker or Podman socket that answers.

    Raises:
        ProviderUnavailableError: If none answers.
    """
    reasons = []
    for host in _engine_hosts():
        if reason := socket_error(host):
            reasons.append(f"{host}: {reason}")
            continue
        try:
            client = docker.DockerClient(base_url=host, timeout=ENGINE_TIMEOUT, tls=_tls_of_environment(host))
        except DockerException as error:
            reasons.append(f"{host}: {root_cause(error)}")
            continue
        try:
            client.ping()
        except (DockerException, OSError) as error:
            client.close()
            reasons.append(f"{host}: {root_cause(error)}")
        else:
            return client
    reason = "; ".join(reasons) or "no engine socket found, and DOCKER_HOST is not set"
    raise ProviderUnavailableError(provider="docker", reason=reason, remedy=_remedy(reason))


def _remedy(reason: str) -> str:
    """Return what to do about an engine that does not answer."""
    if os.strerror(errno.EACCES) in reason:
        first = "Add your user to the group of the socket (sudo usermod -aG docker $USER) and log in again"
    elif "DOCKER_HOST" in os.environ:
        first = "Correct or unset DOCKER_HOST"
    else:
        first = "Install Docker or Podman, and start it (sudo systemctl start docker)"
    return f"{first}; or pass provider='local', which requires no engine"


def _engine_hosts() -> Iterator[str]:
    if host := os.environ.get("DOCKER_HOST"):
        yield host
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    candidates = (
        "/var/run/docker.sock",
        f"{runtime}/docker.sock",
        os.path.expanduser("~/.docker/run/docker.sock"),
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    )
    yield from (f"unix://{path}" for path in candidates if os.path.exists(path))


def socket_error(host: str) -> str | None:
    """Return why a Unix socket is unusable, None if it is usable; the SDK would leak a socket on failure."""
    if not host.startswith("unix://"):
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(host.removeprefix("unix://"))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _tls_of_environment(host: str) -> Any:
    if not os.environ.get("DOCKER_TLS_VERIFY") or host.startswith("unix:"):
        return False
    return kwargs_from_env().get("tls", False)


@dataclass(frozen=True, kw_only=True)
class EngineTraits:
    """Traits of an engine that the options of its containers depend on.

    Attributes:
        is_podman: Whether it is Podman, which supports fewer options.
        is_desktop: Whether it is Docker Desktop, which does not share Unix sockets with its containers.
        has_apparmor: Whether AppArmor confines its containers.
        has_layers_in_memory: Whether its kernel permits overlays in user namespaces whose changes lie in memory.
        can_share_groups: Whether containers may divide their control groups: from Docker 28 on, with version 2 of control
            groups, unless it is rootless or maps users.
    """

    is_podman: bool
    is_desktop: bool
    has_apparmor: bool
    has_layers_in_memory: bool = True
    can_share_groups: bool = False


def _version_of(release: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel's release; high ones if it has none."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (99, 0)


def inspect_engine(client: docker.DockerClient) -> EngineTraits:
    """Return the traits of an engine, in two requests."""
    info = client.info()
    version = client.version()
    security = info.get("SecurityOptions") or ()
    is_podman = any("podman" in component["Name"].lower() for component in version.get("Components") or ())
    major = re.match(r"\d+", version.get("Version", ""))
    return EngineTraits(
        is_podman=is_podman,
        is_desktop="Desktop" in info.get("OperatingSystem", ""),
        has_apparmor=any("apparmor" in option for option in security),
        has_layers_in_memory=_version_of(info.get("KernelVersion", "")) >= _FIRST_WITH_LAYERS_IN_MEMORY,
        can_share_groups=(
            not is_podman
            and major is not None
            and int(major[0]) >= _FIRST_WITH_WRITABLE_GROUPS
            and info.get("CgroupVersion") == "2"
            and not any(option.startswith(("name=rootless", "name=userns")) for option in security)
        ),
    )


def root_cause(error: BaseException) -> str:
    """Return the message of the first error of a chain."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error)
