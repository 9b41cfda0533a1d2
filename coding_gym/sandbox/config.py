"""Sandbox configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from coding_gym._validation import check_count
from coding_gym.client.address import Address
from coding_gym.errors import ConfigurationError
from coding_gym_server.packages.requirements import resolve

__all__ = [
    "Connectivity",
    "Resources",
    "SandboxConfig",
    "SandboxKwargs",
    "ServerOptions",
    "StartKwargs",
    "parse_size",
    "sandbox_config",
]

_PROVIDERS = ("auto", "docker", "local", "remote")
_TRANSPORTS = ("auto", "unix", "tcp")
_ISOLATION = ("require", "prefer")
_MIN_INODES = 1000
_MIN_SESSION_PIDS = 7
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resource limits of a sandbox.

    Attributes:
        cpu: CPU time, in cores.
        mem: Memory including swap, such as ``"2g"``.
        pids_limit: Number of processes and threads.
        session_pids_limit: Number of processes and threads of a session that has a user of its own, its interpreter and the
            interpreter's parent included; if None, three quarters of ``pids_limit``, or all with ``sessions=1``.
        disk: Size of the files of a session, or of all together if they share a file system, such as ``"1g"``; in memory,
            within ``mem``.
        inodes: Number of files and directories of a session, or of all together if they share a file system; Podman does not
            limit it, and the local provider then limits it in ``/dev/shm`` only.
        shm_size: Size of shared memory, such as ``"64m"``.
    """

    cpu: float = 2
    mem: str = "2g"
    pids_limit: int = 256
    session_pids_limit: int | None = None
    disk: str = "512m"
    inodes: int = 100_000
    shm_size: str = "64m"


@dataclass(frozen=True, kw_only=True)
class Connectivity:
    """How a sandbox is reached, and what it can reach.

    Attributes:
        network: Docker network to join; no network access if None.
        host_ip: Host address of the published port, where Unix sockets cannot be shared.
        container_port: Port inside the container, where Unix sockets cannot be shared.
        transport: ``unix``, ``tcp``, or ``auto``: Unix sockets if the engine runs on this machine.
        start_timeout: Seconds that a sandbox may take to start, excluding the build of its image.
        base_url: Address of the remote provider's server.
        token: Bearer token of the remote provider's server.
    """

    network: str | None = None
    host_ip: str = "127.0.0.1"
    container_port: int = 8000
    transport: str = "auto"
    start_timeout: float = 60.0
    base_url: str | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of the server in a sandbox.

    Attributes:
        sessions: Maximum number of concurrent sessions.
        spare_workers: Workers kept ready, so that a reset does not wait for a fork; each takes about 5 MB.
        preload: Modules imported in advance in every interpreter.
        packages: Packages to install in addition to those of the image: ``"toolz"``, ``"numpy>=2"``, ``"cv2"`` ...; see
            ``docs/packages.md``.
        fix_typos: Whether to accept suggestions for suspicious or ambiguous names in ``packages``, which are errors otherwise.
        backend: Default backend, which is ready from the start; ``python`` if None.
        isolation: ``require`` refuses to start if the kernel or the engine cannot isolate sessions, ``prefer`` continues with
            less isolation; the default is ``require`` for ``local`` and ``prefer`` for ``docker``.
        session_users: Whether each session gets a user, mounts and a file system of its own: ``disk`` is then the size of each,
            and its ``/home/user``, ``/tmp`` and ``/dev/shm`` belong to it alone. Local sandboxes of other users than root have
            no users for sessions, only mounts. If the engine or the kernel does not permit it, sessions share a user and a file
            system, as with ``False``; ``isolation="require"`` then refuses to start a container.
        environment: Environment variables of the server, for the docker and the local provider.
        idle_timeout: Seconds after which a sandbox ends by itself if its last client has disconnected without removing it.
    """

    sessions: int = 1
    spare_workers: int = 1
    preload: tuple[str, ...] = ("numpy", "pandas", "matplotlib.pyplot")
    packages: tuple[str, ...] = ()
    fix_typos: bool = False
    backend: str | None = None
    isolation: str | None = None
    session_users: bool = True
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    idle_timeout: float = 10.0


@dataclass(frozen=True, kw_only=True)
class SandboxConfig(ServerOptions, Connectivity, Resources):
    """Sandbox configuration: where a sandbox runs, its resources, its server and how it is reached.

    Names and defaults are AgentFly's where it has them. ``SandboxKwargs`` types the same options as keyword arguments.

    Attributes:
        provider: ``auto`` (Docker if an engine answers, else local), ``docker``, ``local`` or ``remote``.
        image: Image of the docker provider; built from this package's sources if None.
        runtime: Name of an OCI runtime, such as ``runsc`` or ``kata``; the engine's default if None.
    """

    provider: str = "auto"
    image: str | None = None
    runtime: str | None = None

    def __post_init__(self) -> None:
        _expect(self.provider in _PROVIDERS, "provider", f"one of {', '.join(_PROVIDERS)}", self.provider)
        _expect(self.transport in _TRANSPORTS, "transport", f"one of {', '.join(_TRANSPORTS)}", self.transport)
        _expect(self.isolation in (*_ISOLATION, None), "isolation", "'require' or 'prefer'", self.isolation)
        for name in ("cpu", "start_timeout", "idle_timeout"):
            value = getattr(self, name)
            valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
            _expect(valid, name, "a positive number", value)
        smallest = {"pids_limit": 1, "inodes": _MIN_INODES, "sessions": 1, "spare_workers": 0, "container_port": 1}
        for name in smallest:
            check_count(name, getattr(self, name), smallest[name])
        if self.session_pids_limit is not None:
            check_count("session_pids_limit", self.session_pids_limit, _MIN_SESSION_PIDS)
        for name, expected in (("preload", "a list of module names"), ("packages", "a list of names of packages")):
            names: Any = getattr(self, name)
            valid = isinstance(names, (list, tuple)) and all(isinstance(entry, str) for entry in names)
            _expect(valid, name, expected, names)
            object.__setattr__(self, name, tuple(names))
        for name in ("fix_typos", "session_users"):
            _expect(isinstance(getattr(self, name), bool), name, "True or False", getattr(self, name))
        try:
            resolve(self.packages, fix_typos=self.fix_typos)
        except ValueError as error:
            message = f"packages=: {error}"
            raise ConfigurationError(message) from None
        variables: Any = self.environment
        valid = isinstance(variables, Mapping) and all(_is_variable(*item) for item in variables.items())
        _expect(valid, "environment", "a mapping of names to values, both str", variables)
        object.__setattr__(self, "environment", dict(variables))
        for name in ("mem", "disk", "shm_size"):
            parse_size(getattr(self, name), name)
        if self.provider == "remote" and not self.base_url:
            message = "provider='remote' requires base_url=, the address of a running server such as http://127.0.0.1:8000"
            raise ConfigurationError(message)
        if self.base_url:
            Address.of_url(self.base_url)
        if self.provider not in ("remote", "auto") and self.base_url:
            message = f"base_url= is only valid with provider='remote', got provider={self.provider!r}"
            raise ConfigurationError(message)
        if self.base_url and self.packages:
            message = "packages= cannot be combined with base_url=: the server there has the packages that it was started with"
            raise ConfigurationError(message)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SandboxConfig:
        """Create a configuration from keyword arguments.

        Raises:
            ConfigurationError: If an option is unknown or invalid.
        """
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            message = f"Unknown settings: {', '.join(unknown)}. A sandbox has: {', '.join(sorted(known))}"
            raise ConfigurationError(message)
        return cls(**options)


class StartKwargs(TypedDict, total=False):
    """The fields of ``SandboxConfig`` except ``image``, ``base_url`` and ``token``, as keyword arguments."""

    provider: str
    runtime: str | None
    cpu: float
    mem: str
    pids_limit: int
    session_pids_limit: int | None
    disk: str
    inodes: int
    shm_size: str
    network: str | None
    host_ip: str
    container_port: int
    transport: str
    start_timeout: float
    sessions: int
    spare_workers: int
    preload: Sequence[str]
    packages: Sequence[str]
    fix_typos: bool
    backend: str | None
    isolation: str | None
    session_users: bool
    environment: Mapping[str, str]
    idle_timeout: float


class SandboxKwargs(StartKwargs, total=False):
    """The fields of ``SandboxConfig`` as keyword arguments."""

    image: str | None
    base_url: str | None
    token: str | None


def sandbox_config(config: SandboxConfig | Mapping[str, Any] | None, sandbox_options: Mapping[str, Any]) -> SandboxConfig:
    """Return the configuration passed as ``config=`` or as single options.

    Raises:
        ConfigurationError: If an option is invalid, or both forms are used.
    """
    if config is not None and sandbox_options:
        message = f"Pass either config= or single options, not both; got config= and {', '.join(sandbox_options)}"
        raise ConfigurationError(message)
    if isinstance(config, SandboxConfig):
        return config
    if config is not None and not isinstance(config, Mapping):
        message = f"Expected config= to be a SandboxConfig or a mapping of its fields, got {config!r}"
        raise ConfigurationError(message)
    return SandboxConfig.of(sandbox_options if config is None else config)


def parse_size(text: str, name: str = "size") -> int:
    """Return the number of bytes of a size such as ``"512m"`` or ``"2g"``.

    Raises:
        ConfigurationError: If it is not a size.
    """
    match = re.fullmatch(r"([0-9]+)([bkmgt]?)b?", str(text).strip().lower())
    _expect(match is not None and int(match[1]) > 0, name, "a size such as '512m' or '2g'", text)
    assert match is not None
    return int(match[1]) * _UNITS[match[2]]


def _is_variable(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    return bool(name) and "=" not in name and "\0" not in name + value


def _expect(condition: bool, name: str, expected: str, found: object) -> None:
    if not condition:
        message = f"Expected {name}= to be {expected}, got {found!r}"
        raise ConfigurationError(message)
