"""The docker provider: one hardened container per sandbox.

It works with any engine that implements Docker's API, including Podman.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import Mount, Ulimit
from msgspec.structs import replace
from requests import RequestException

from coding_gym._version import __version__
from coding_gym.client.address import Address
from coding_gym.errors import ConfigurationError, SandboxStartError, TransportError
from coding_gym.sandbox.base import Sandbox, check_exit_code, wait_until_ready
from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym.sandbox.docker.cleanup import remove_orphans_once, try_to_remove
from coding_gym.sandbox.docker.derived_images import ensure_image_with_packages
from coding_gym.sandbox.docker.engine import EngineTraits, connect_to_engine, inspect_engine, root_cause
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.sandbox.docker.runtime import ENTRY_POINT, ensure_runtime, environment_beside, settings_of
from coding_gym.sandbox.ownership import LABEL_OWNER, OwnerProcess, new_runtime_directory
from coding_gym.sandbox.server_config import server_config
from coding_gym_server.protocol import ImageSettings, ServerConfig

__all__ = ["LABEL_OWNER", "LABEL_VERSION", "DockerSandbox", "start_container"]

LABEL_VERSION = "coding_gym.version"

_UID = 10001
_SECCOMP_PROFILE = Path(__file__).parent / "seccomp.json"
_LOG_BYTES = 4000
_SOCKET_DIRECTORY = "/run/coding-gym"
_START_SECONDS = 3600
"""Time before the end of a container in which its events are."""

_HOME = "/home/user"
_LAYERS = "/.coding-gym-layers"
"""Volume for what sessions change, where the kernel permits no overlays in memory. The engine removes it with the container."""

_HOST_NAME = "sandbox"
_WORKSPACES = "/workspaces"
_DESCRIPTORS = 8192
_PODMAN_PROCESSES = 32_768

_CHECK_OPTIONS = "Check cpu=, mem=, pids_limit=, runtime= and network="

_log = logging.getLogger("coding_gym")

_shared_user_reasons: dict[tuple[str, str | None], str] = {}
"""Why sessions cannot have users, by the address of the engine and the name of the runtime."""


class _RefusedError(SandboxStartError):
    """The engine refuses to create or to start a container."""


class DockerSandbox(Sandbox):
    """A sandbox in a Docker container.

    Args:
        address: Address of its server.
        client: Connection to the engine; the sandbox takes ownership of it.
        container: The container.
        directory: The host directory of its socket, None with TCP.
    """

    def __init__(self, address: Address, client: docker.DockerClient, container: Container, directory: Path | None) -> None:
        name = container.attrs["Config"]["Image"]
        super().__init__(address, f"a Docker container ({container.short_id}, image {name})")
        self.container = container
        self._client = client
        self._directory = directory

    def _remove(self) -> None:
        try_to_remove(self.container)
        self._client.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def start_container(config: SandboxConfig, *, shared_user_reason: str = "") -> DockerSandbox:
    """Start a container, building its image first if necessary, and wait until it is ready.

    Args:
        config: Its configuration.
        shared_user_reason: The reason why its sessions cannot have users; empty to try to give them users.

    Raises:
        ProviderUnavailableError: If no engine answers.
        ImageBuildError: If the image build fails.
        PackageInstallError: If the packages cannot be installed.
        SandboxStartError: If the container does not start.
    """
    client = connect_to_engine()
    place = (client.api.base_url, config.runtime)
    reason = shared_user_reason or _shared_user_reasons.get(place, "")
    has_root = config.root
    try:
        remove_orphans_once(client)
        image = _Image.of(client, config)
        has_root = has_root or image.settings is not None
        engine = inspect_engine(client)
        if has_root and not engine.has_layers_in_memory:
            image = image._replace(layers=Path(_LAYERS))
        if not reason and engine.is_podman and not _is_here(client):
            reason = "Podman accepts a seccomp profile by path only, and it runs on another machine"
        if has_root and reason:
            option = "root=True" if image.settings is None else f"image={image.name!r}"
            message = f"{option} is not available: sessions cannot have their own root, because {reason}"
            raise SandboxStartError(message)
        server = replace(
            server_config(config, shared_user_reason=reason),
            workspaces=Path(image.workspaces),
            isolation=config.isolation or "prefer",
            session_root=has_root,
            image=image.settings,
            mounts=tuple(config.mounts or ()),
            layers=image.layers,
        )
        options = {**_limits(config, engine, image, has_root=has_root), **_user_options(engine, reason, has_root=has_root)}
        start = _start_with_socket if _uses_unix_socket(client, config, engine) else _start_with_port
        sandbox = start(client, config, image, server, options)
    except _RefusedError as error:
        client.close()
        if reason or has_root:
            raise SandboxStartError(str(error)) from error
        sandbox = start_container(config, shared_user_reason=str(error))
        # Only now: the engine may have refused another option.
        _log.warning("the session of this container has no namespaces: %s", error)
        return sandbox
    except (DockerException, RequestException) as error:
        client.close()
        message = f"The engine failed while a container was started: {root_cause(error)}"
        raise SandboxStartError(message) from error
    except BaseException:
        client.close()
        raise
    if reason:
        return sandbox
    try:
        found = sandbox.health()["isolation"].get("shared_user_reason")
    except BaseException:
        sandbox.close()
        raise
    if not found:
        return sandbox
    # This container was given what users for sessions require: replace it by one with fewer privileges.
    _log.warning("the sessions of this engine's containers have no namespaces: %s", found)
    _shared_user_reasons[place] = found
    sandbox.close()
    return start_container(config, shared_user_reason=found)


class _Image(NamedTuple):
    """Image of a container.

    Attributes:
        name: Its name.
        settings: What it sets for programs; None if it has the server.
        runtime: The volume with the server and its mount point; None if the image has it.
        layers: Volume for what sessions change; None if that lies in memory.
    """

    name: str
    settings: ImageSettings | None = None
    runtime: str | None = None
    layers: Path | None = None

    @classmethod
    def of(cls, client: docker.DockerClient, config: SandboxConfig) -> _Image:
        """Return the image of a configuration, after building or pulling it if necessary."""
        if config.image is None:
            return cls(ensure_image_with_packages(client, config))
        name = ensure_image(client, config.image)
        settings = settings_of(client, name)
        if settings is None:
            return cls(ensure_image_with_packages(client, config))
        basis = "which is not based on the default one (see docs/packages.md)"
        for option in ("packages", "system_packages", "languages"):
            if getattr(config, option):
                message = f"{option}= cannot be installed into the image {config.image!r}, {basis}: add them to its Dockerfile"
                raise ConfigurationError(message)
        return cls(name, settings, ensure_runtime(client))

    @property
    def workspaces(self) -> str:
        """Directory of the server, which the image does not have."""
        return _WORKSPACES if self.settings is None else f"/.{_WORKSPACES[1:]}"

    def options(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return options of a container, in which the image sets nothing for the server.

        Args:
            environment: Environment variables of the server.
        """
        volumes = [] if self.layers is None else [str(self.layers)]
        if self.settings is None:
            return {"environment": dict(environment), "volumes": volumes}
        return {
            "entrypoint": list(ENTRY_POINT),
            # Where sessions mount their own: created if the image has no such directories, with its files otherwise.
            "working_dir": _HOME,
            "volumes": ["/tmp", *volumes],
            "environment": {**environment_beside(self.settings.environment), **environment},
            "healthcheck": {"test": ["NONE"]},
        }


def _warn_of_missing_limits(container: Container, config: SandboxConfig) -> None:
    """Log which limits an engine has left out, as Podman does where its user has no control group."""
    host = container.attrs["HostConfig"]
    limits = {"mem": "Memory", "cpu": "NanoCpus", "pids_limit": "PidsLimit"}
    if missing := [f"{option}={getattr(config, option)!r}" for option, name in limits.items() if not host.get(name)]:
        _log.warning(
            "the engine does not enforce %s: it controls no such resources. Rootless Podman needs version 2 of control groups, "
            "with these delegated to its user (systemd's Delegate=)",
            ", ".join(missing),
        )


def _start_with_socket(
    client: docker.DockerClient, config: SandboxConfig, image: _Image, server: ServerConfig, options: dict[str, Any]
) -> DockerSandbox:
    with new_runtime_directory() as directory:
        shared = directory / "run"
        shared.mkdir()
        # The container's user creates its socket here; the parent directory keeps out other users of this machine.
        shared.chmod(0o777)
        token = secrets.token_urlsafe(32) if config.token is None else config.token
        (shared / "token").write_text(token)
        (shared / "token").chmod(0o644)
        address = Address.of_unix_socket(str(shared / "server.sock"), token=token)
        server = replace(server, uds=f"{_SOCKET_DIRECTORY}/server.sock")
        command = ["--token-file", f"{_SOCKET_DIRECTORY}/token", "--config", server.document()]
        options = {
            "binds": [f"{shared}:{_SOCKET_DIRECTORY}:rw"],
            "network_mode": config.network or "none",
            **options,
        }
        container = _start(client, config, image, command, options, lambda _: address)
    return DockerSandbox(address, client, container, directory)


def _start_with_port(
    client: docker.DockerClient, config: SandboxConfig, image: _Image, server: ServerConfig, options: dict[str, Any]
) -> DockerSandbox:
    token = secrets.token_urlsafe(32) if config.token is None else config.token
    command = ["--token-file", "-", "--config", server.document()]
    options = {"port_bindings": {server.port: (config.host_ip, None)}, "network_mode": config.network, **options}

    def address_of(container: Container) -> Address:
        container.reload()
        bindings = container.ports.get(f"{server.port}/tcp")
        if not bindings:
            message = f"{container.short_id} has no published port yet"
            raise TransportError(message)
        return Address(f"http://{_host_of(config)}:{bindings[0]['HostPort']}", token=token)

    container = _start(client, config, image, command, options, address_of, stdin=token)
    return DockerSandbox(address_of(container), client, container, None)


def _start(
    client: docker.DockerClient,
    config: SandboxConfig,
    image: _Image,
    command: list[str],
    options: dict[str, Any],
    address_of: Any,
    *,
    stdin: str | None = None,
) -> Container:
    """Create and start a container, send it a line on standard input, and wait until its server is ready.

    Args:
        client: Connection to the engine.
        config: The sandbox's configuration.
        image: The image.
        command: Arguments of the server.
        options: Options of the container's host configuration in addition to those that all containers have.
        address_of: Function that returns the address of the started container.
        stdin: The line, None for none.
    """
    container = _create(client, config, image, command, options)
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
            printed = output.tail()
            code, has_memory = _recorded_end(client, container)
            check_exit_code(code, printed)
            if not has_memory:
                limit = f"the engine reports that it ran out of memory: raise mem=, which is {config.mem!r}"
                return f"{limit}. It printed: {printed}" if printed else limit
            return printed or f"it printed nothing, and exited with code {'unknown' if code is None else code}"

        wait_until_ready(address_of(container), timeout=config.start_timeout, explain_death=explain_death)
        container.reload()
        _warn_of_missing_limits(container, config)
    except (APIError, SandboxStartError) as error:
        try_to_remove(container)
        reason = str((error.explanation if isinstance(error, APIError) else None) or error)
        if isinstance(error, SandboxStartError):
            raise
        message = f"The container does not start: {reason}. {_CHECK_OPTIONS}"
        raise _RefusedError(message) from error
    except BaseException:
        try_to_remove(container)
        raise
    finally:
        output.close()
    return container


def _recorded_end(client: docker.DockerClient, container: Container) -> tuple[int | None, bool]:
    """Return the exit code of a container that has ended, None if unknown, and whether its memory sufficed, so far as is known.

    The engine removes the container at once, but records events.
    """
    code, has_memory = None, True
    with contextlib.suppress(DockerException, RequestException, KeyError, ValueError):
        filters = {"container": container.id, "event": ["die", "oom"]}
        # In the time of the engine, which may be on another machine; the end of the current second, for which it waits.
        now = int(datetime.fromisoformat(client.info()["SystemTime"]).timestamp()) + 1
        for event in client.api.events(since=now - _START_SECONDS, until=now, filters=filters, decode=True):
            if event["Action"] == "oom":
                has_memory = False
            else:
                code = int(event["Actor"]["Attributes"]["exitCode"])
    return code, has_memory


def _create(
    client: docker.DockerClient, config: SandboxConfig, image: _Image, command: list[str], options: dict[str, Any]
) -> Container:
    if image.runtime is not None:
        options = {**options, "binds": [*options.get("binds", ()), image.runtime]}
    if config.mounts and not _is_here(client):
        message = (
            "mounts= requires an engine on this machine, whose directories they are: build an image with the files instead"
        )
        raise ConfigurationError(message)
    mounts = [Mount(target, source, type="bind", read_only=True) for target, source in (config.mounts or {}).items()]
    host = client.api.create_host_config(
        mounts=mounts,
        auto_remove=True,
        read_only=True,
        cap_drop=["ALL"],
        pids_limit=config.pids_limit,
        mem_limit=config.mem,
        memswap_limit=config.mem,
        nano_cpus=int(config.cpu * 1e9),
        shm_size=config.shm_size,
        runtime=config.runtime,
        **options,
    )
    if _has_session_users(options):
        # Each session mounts a /proc and masks the same paths in it; the kernel refuses that if some are masked already.
        host |= {"MaskedPaths": [], "ReadonlyPaths": []}
    try:
        created = client.api.create_container(
            image.name,
            command,
            name=f"coding-gym-{secrets.token_hex(6)}",
            # A container in the network of another one has its name.
            hostname=None if (config.network or "").startswith("container:") else _HOST_NAME,
            labels={LABEL_OWNER: str(OwnerProcess.current()), LABEL_VERSION: __version__},
            **image.options(config.environment),
            user="0:0" if _has_session_users(options) else f"{_UID}:{_UID}",
            stdin_open="port_bindings" in options,
            ports=list(options.get("port_bindings", ())),
            host_config=host,
        )
        return client.containers.get(created["Id"])
    except APIError as error:
        message = f"The container cannot be created: {error.explanation or error}. {_CHECK_OPTIONS}"
        raise _RefusedError(message) from error


def _has_session_users(options: dict[str, Any]) -> bool:
    """Return whether a container's options are such that its sessions have users: the launcher changes to them."""
    return "cap_add" in options


def _limits(config: SandboxConfig, engine: EngineTraits, image: _Image, *, has_root: bool) -> dict[str, Any]:
    """Return the container's options about files and processes that depend on the engine."""
    # A session with a root gets what the image has there.
    places = () if has_root else ("/tmp", _HOME)
    tmpfs = f"rw,exec,nosuid,nodev,size={parse_size(config.disk)}"
    ulimits = {"core": 0, "nofile": _DESCRIPTORS}
    if engine.is_podman:
        # Podman does not support nr_inodes, and its default process limit may exceed that of the engine itself.
        ulimits["nproc"] = _PODMAN_PROCESSES
    else:
        tmpfs += f",nr_inodes={config.inodes}"
    return {
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ulimits.items()],
        # Only root can list the workspaces or change their mode: the names of what displays draw are random.
        "tmpfs": {image.workspaces: f"{tmpfs},mode=1733", **dict.fromkeys(places, f"{tmpfs},mode=1777")},
    }


def _user_options(engine: EngineTraits, shared_user_reason: str, *, has_root: bool) -> dict[str, Any]:
    """Return the container's options about users and namespaces."""
    security = ["no-new-privileges"]
    if shared_user_reason:
        return {"security_opt": security}
    if engine.is_podman:
        # It reads the profile itself, and has an option where Docker has lists of paths.
        security += [f"seccomp={_SECCOMP_PROFILE}", "unmask=ALL"]
    else:
        security.append(f"seccomp={_SECCOMP_PROFILE.read_text()}")
    if engine.has_apparmor:
        # The engine's profile denies all mounts.
        security.append("apparmor=unconfined")
    if engine.can_share_groups:
        security.append("writable-cgroups=true")
    # Without it, the root of a container cannot be mapped in a user namespace.
    roots = ["SETFCAP"] if has_root else []
    # Root whose only capabilities change users: the launcher keeps them as another user, the server drops them at once.
    groups = {"cgroupns": "private"} if engine.can_share_groups else {}
    return {"cap_add": ["SETUID", "SETGID", *roots], "security_opt": security, **groups}


def _send_line(container: Container, line: str) -> None:
    """Write a line to a container's standard input, which, unlike its environment, cannot be inspected afterwards."""
    stream: Any = container.attach_socket(params={"stdin": 1, "stream": 1})
    try:
        # Over most transports the SDK wraps the socket in a read-only object.
        getattr(stream, "_sock", stream).sendall(f"{line}\n".encode())
    finally:
        with contextlib.suppress(AttributeError):
            stream._response.close()
        stream.close()


class _Output:
    """Output of a container that is starting: after a failure, it may be removed before its log can be read.

    Args:
        container: A container that is created, but not started.
    """

    def __init__(self, container: Container) -> None:
        self._stream: Any = None
        with contextlib.suppress(DockerException, OSError):
            self._stream = container.attach(stdout=True, stderr=True, stream=True, logs=True)

    def tail(self) -> str:
        """Wait for the container to end, and return the end of its output, empty if there is none."""
        text = b""
        with contextlib.suppress(DockerException, OSError):
            for chunk in self._stream or ():
                text = (text + chunk)[-_LOG_BYTES:]
        return text.decode(errors="replace").strip()

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(DockerException, OSError, AttributeError):
                self._stream.close()
                # The SDK shuts the socket down, but does not close it.
                self._stream._response.close()


def _uses_unix_socket(client: docker.DockerClient, config: SandboxConfig, engine: EngineTraits) -> bool:
    if config.transport != "auto":
        return config.transport == "unix"
    return _is_here(client) and not engine.is_desktop


def _is_here(client: docker.DockerClient) -> bool:
    """Return whether an engine runs on this machine, perhaps in a virtual one of Docker Desktop's."""
    return urlsplit(client.api.base_url).scheme in ("http+docker", "http+unix") and sys.platform == "linux"


def _host_of(config: SandboxConfig) -> str:
    """Return the host of published ports: the engine's, if it is another machine."""
    engine = urlsplit(os.environ.get("DOCKER_HOST", ""))
    if engine.scheme in ("tcp", "ssh", "http", "https") and engine.hostname:
        return engine.hostname
    return "127.0.0.1" if config.host_ip == "0.0.0.0" else config.host_ip  # noqa: S104 - compared, not bound
