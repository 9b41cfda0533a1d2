"""The docker provider: one hardened container per sandbox.

It speaks to any engine with Docker's API, Podman's included.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import Ulimit
from docker.utils import kwargs_from_env
from requests import RequestException

from coding_gym.client.address import Address
from coding_gym.config import SandboxConfig, parse_size
from coding_gym.errors import ProviderUnavailableError, SandboxStartError, TransportError
from coding_gym.providers.arguments import server_arguments
from coding_gym.providers.base import Sandbox, wait_until_ready
from coding_gym.providers.derived_image import ensure_packages
from coding_gym.providers.image import ensure_image
from coding_gym.providers.owner import LABEL_OWNER, Owner, new_runtime_directory, sweep_runtime_directories
from coding_gym.providers.packages import resolve_packages
from coding_gym.version import __version__

__all__ = [
    "LABEL_OWNER",
    "LABEL_VERSION",
    "DockerSandbox",
    "connect_to_engine",
    "our_containers",
    "remove_container",
    "start_container",
    "sweep",
]

LABEL_VERSION = "coding_gym.version"

_UID = 10001
_ENGINE_TIMEOUT = 60
_CONFLICT = 409
_LOG_BYTES = 4000
_SOCKET_DIRECTORY = "/run/coding-gym"
_HOME = "/home/user"
_WORKSPACES = "/workspaces"
_X_SOCKETS = "/tmp/.X11-unix"
_INODES = 100_000
_DESCRIPTORS = 8192
_PODMAN_PROCESSES = 32_768

_log = logging.getLogger("coding_gym")
_sweep_once = threading.Lock()
_swept = False


class DockerSandbox(Sandbox):
    """A container.

    Args:
        address: Where its server is.
        client: The engine; the sandbox owns the connection from now on.
        container: The container.
        directory: The directory on the host that holds its socket, None with TCP.
    """

    def __init__(self, address: Address, client: docker.DockerClient, container: Container, directory: Path | None) -> None:
        name = container.attrs["Config"]["Image"]
        super().__init__(address, f"a Docker container ({container.short_id}, image {name})")
        self.container = container
        self._client = client
        self._directory = directory

    def _remove(self) -> None:
        _try_to_remove(self.container)
        self._client.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def connect_to_engine() -> docker.DockerClient:
    """Connect to the engine that ``DOCKER_HOST`` names, or else to the first Docker or Podman socket that answers.

    Raises:
        ProviderUnavailableError: None answers.
    """
    reasons = []
    for host in _engine_hosts():
        if fault := _fault_of_socket(host):
            reasons.append(f"{host}: {fault}")
            continue
        try:
            client = docker.DockerClient(base_url=host, timeout=_ENGINE_TIMEOUT, tls=_tls_of_environment(host))
        except DockerException as error:
            reasons.append(f"{host}: {_root_cause(error)}")
            continue
        try:
            client.ping()
        except (DockerException, OSError) as error:
            client.close()
            reasons.append(f"{host}: {_root_cause(error)}")
        else:
            return client
    reason = "; ".join(reasons) or "there is no engine's socket, and DOCKER_HOST is not set"
    raise ProviderUnavailableError(provider="docker", reason=reason)


def start_container(config: SandboxConfig) -> DockerSandbox:
    """Start a container, building its image first if need be, and wait until it is ready.

    Raises:
        ProviderUnavailableError: No engine answers.
        ImageBuildError: The image does not build.
        PackageInstallError: Its packages cannot be installed.
        SandboxStartError: The container does not come up.
    """
    client = connect_to_engine()
    try:
        _sweep_at_first_start(client)
        image = ensure_image(client, config.image)
        image = ensure_packages(client, image, resolve_packages(config.packages).requirements)
        start = _start_with_socket if _uses_unix_socket(client, config) else _start_with_port
        return start(client, config, image)
    except (DockerException, RequestException) as error:
        client.close()
        message = f"The engine failed while a container was started: {_root_cause(error)}"
        raise SandboxStartError(message) from error
    except BaseException:
        client.close()
        raise


def our_containers(client: docker.DockerClient) -> list[tuple[Container, Owner]]:
    """Return all containers of this package with their owners, whoever they are."""
    found = []
    for container in client.containers.list(all=True, filters={"label": LABEL_OWNER}, ignore_removed=True):
        with contextlib.suppress(ValueError):
            found.append((container, Owner.parse(container.labels[LABEL_OWNER])))
    return found


def sweep(client: docker.DockerClient) -> list[str]:
    """Remove the containers and directories of processes that are gone; returns the names of the containers."""
    orphans = [container for container, owner in our_containers(client) if owner.is_known_dead()]
    for container in orphans:
        _try_to_remove(container)
    sweep_runtime_directories()
    return [str(container.name) for container in orphans]


def _start_with_socket(client: docker.DockerClient, config: SandboxConfig, image: str) -> DockerSandbox:
    with new_runtime_directory() as directory:
        shared = directory / "run"
        shared.mkdir()
        # The container's user must make its socket here; other users of this machine do not get past the directory above.
        shared.chmod(0o777)
        token = secrets.token_urlsafe(32)
        (shared / "token").write_text(token)
        (shared / "token").chmod(0o644)
        address = Address.of_unix_socket(str(shared / "server.sock"), token=token)
        command = ["--uds", f"{_SOCKET_DIRECTORY}/server.sock", "--token-file", f"{_SOCKET_DIRECTORY}/token"]
        options = {
            "volumes": {str(shared): {"bind": _SOCKET_DIRECTORY, "mode": "rw"}},
            "network_mode": config.network or "none",
        }
        container = _start(client, config, image, command, options, lambda _: address)
    return DockerSandbox(address, client, container, directory)


def _start_with_port(client: docker.DockerClient, config: SandboxConfig, image: str) -> DockerSandbox:
    token = secrets.token_urlsafe(32)
    options: dict[str, Any] = {"ports": {f"{config.container_port}/tcp": (config.host_ip, None)}, "stdin_open": True}
    if config.network:
        options["network"] = config.network

    def address_of(container: Container) -> Address:
        container.reload()
        bindings = container.ports.get(f"{config.container_port}/tcp")
        if not bindings:
            message = f"{container.short_id} has no published port yet"
            raise TransportError(message)
        return Address(f"http://{_host_of(config)}:{bindings[0]['HostPort']}", token=token)

    command = ["--port", str(config.container_port), "--token-file", "-"]
    container = _start(client, config, image, command, options, address_of, stdin=token)
    return DockerSandbox(address_of(container), client, container, None)


def _start(
    client: docker.DockerClient,
    config: SandboxConfig,
    image: str,
    command: list[str],
    options: dict[str, Any],
    address_of: Any,
    *,
    stdin: str | None = None,
    init: bool = True,
) -> Container:
    """Create and start a container, give it a line to read, and wait until its server is ready."""
    container = _create(client, config, image, [*command, *server_arguments(config)], {"init": init, **options})
    output = _Output(container)
    try:
        container.start()
        if stdin is not None:
            _send_line(container, stdin)

        def explain_death() -> str | None:
            with contextlib.suppress(NotFound):
                container.reload()
                if container.status not in ("removing", "exited", "dead"):
                    return None
            return output.tail()

        wait_until_ready(address_of(container), timeout=config.start_timeout, explain_death=explain_death)
    except APIError as error:
        _try_to_remove(container)
        if init and "init" in str(error.explanation):
            # An engine without an init of its own; the image has one.
            return _start(client, config, image, command, options, address_of, stdin=stdin, init=False)
        message = f"The container does not start: {error.explanation or error}"
        raise SandboxStartError(message) from error
    except BaseException:
        _try_to_remove(container)
        raise
    finally:
        output.close()
    return container


def _create(
    client: docker.DockerClient, config: SandboxConfig, image: str, command: list[str], options: dict[str, Any]
) -> Container:
    tmpfs = f"rw,exec,nosuid,nodev,size={parse_size(config.disk)}"
    ulimits = {"core": 0, "nofile": _DESCRIPTORS}
    if _is_podman(client):
        # It does not know nr_inodes, and its own default for processes is more than the engine itself may have, sometimes.
        ulimits["nproc"] = _PODMAN_PROCESSES
    else:
        tmpfs += f",nr_inodes={_INODES}"
    try:
        return client.containers.create(
            image,
            [*command, "--private-tmp", "--workspaces", _WORKSPACES, "--isolation", config.isolation or "prefer"],
            name=f"coding-gym-{secrets.token_hex(6)}",
            labels={LABEL_OWNER: str(Owner.current()), LABEL_VERSION: __version__},
            auto_remove=True,
            environment=dict(config.environment),
            user=f"{_UID}:{_UID}",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=config.pids_limit,
            mem_limit=config.mem,
            memswap_limit=config.mem,
            nano_cpus=int(config.cpu * 1e9),
            shm_size=config.shm_size,
            ulimits=[Ulimit(name=name, soft=limit, hard=limit) for name, limit in ulimits.items()],
            # Nobody but root can list the one, or make it listable: sessions have random names there.
            tmpfs={
                _WORKSPACES: f"{tmpfs},mode=1733",
                **dict.fromkeys(("/tmp", _HOME, *([_X_SOCKETS] if config.sessions > 1 else [])), f"{tmpfs},mode=1777"),
            },
            runtime=config.runtime,
            **options,
        )
    except APIError as error:
        message = f"The container cannot be created: {error.explanation or error}"
        raise SandboxStartError(message) from error


def _send_line(container: Container, line: str) -> None:
    """Write to a container's standard input: unlike its environment, what it has read is nowhere to be found."""
    stream: Any = container.attach_socket(params={"stdin": 1, "stream": 1})
    try:
        # Over most transports the SDK wraps what it has into something that cannot write.
        getattr(stream, "_sock", stream).sendall(f"{line}\n".encode())
    finally:
        with contextlib.suppress(AttributeError):
            stream._response.close()
        stream.close()


class _Output:
    """What a container prints while it starts: when it fails, it is gone before its log can be asked for.

    Args:
        container: Created, but not started.
    """

    def __init__(self, container: Container) -> None:
        self._stream: Any = None
        with contextlib.suppress(DockerException, OSError):
            self._stream = container.attach(stdout=True, stderr=True, stream=True, logs=True)

    def tail(self) -> str:
        """Return the end of what it printed. Waits for the container to end."""
        text = b""
        with contextlib.suppress(DockerException, OSError):
            for chunk in self._stream or ():
                text = (text + chunk)[-_LOG_BYTES:]
        return text.decode(errors="replace").strip() or "it printed nothing"

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(DockerException, OSError, AttributeError):
                self._stream.close()
                # The SDK shuts the socket down, but leaves it open.
                self._stream._response.close()


def remove_container(container: Container) -> bool:
    """Remove a container; says whether it was there to be removed.

    Raises:
        DockerException: The engine refused.
        OSError: It does not answer.
    """
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return False
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
        # It is being removed already: it ended by itself, or somebody else is at it.
        return False
    return True


def _try_to_remove(container: Container) -> None:
    try:
        remove_container(container)
    except (DockerException, OSError) as error:
        # The error's text alone: what keeps the record would keep the SDK's socket open, too.
        reason = _root_cause(error)
        _log.warning("the container %s could not be removed: %s; it will end by itself", container.short_id, reason)


def _sweep_at_first_start(client: docker.DockerClient) -> None:
    global _swept
    with _sweep_once:
        if _swept:
            return
        _swept = True
    with contextlib.suppress(DockerException):
        for name in sweep(client):
            _log.warning("removed the container %s, whose owner is gone", name)


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


def _fault_of_socket(host: str) -> str | None:
    """Say why an engine's Unix socket is of no use, if it is: the SDK leaves a socket of its own open when it finds out."""
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


def _uses_unix_socket(client: docker.DockerClient, config: SandboxConfig) -> bool:
    if config.transport != "auto":
        return config.transport == "unix"
    is_here = urlsplit(client.api.base_url).scheme in ("http+docker", "http+unix") and sys.platform == "linux"
    return is_here and "Desktop" not in client.info().get("OperatingSystem", "")


def _is_podman(client: docker.DockerClient) -> bool:
    """Say whether the engine is Podman, which knows fewer options of tmpfs."""
    return any("podman" in component["Name"].lower() for component in client.version().get("Components", ()))


def _host_of(config: SandboxConfig) -> str:
    """Return the host at which a published port is: the engine's, if it is another machine."""
    engine = urlsplit(os.environ.get("DOCKER_HOST", ""))
    if engine.scheme in ("tcp", "ssh", "http", "https") and engine.hostname:
        return engine.hostname
    return "127.0.0.1" if config.host_ip == "0.0.0.0" else config.host_ip  # noqa: S104 - compared, not bound


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error)
