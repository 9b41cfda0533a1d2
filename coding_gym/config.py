"""What a sandbox is started with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from coding_gym.client.address import Address
from coding_gym.errors import ConfigurationError
from coding_gym_server.packages import resolve

__all__ = ["SandboxConfig", "parse_size", "sandbox_config"]

_PROVIDERS = ("auto", "docker", "local", "remote")
_TRANSPORTS = ("auto", "unix", "tcp")
_ISOLATION = ("require", "prefer")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """The settings of a sandbox; the names and defaults are AgentFly's where it has them.

    Attributes:
        provider: ``auto`` (Docker if an engine answers, else local), ``docker``, ``local`` or ``remote``.
        image: The image of the docker provider; built from this package's own sources if None.
        runtime: An OCI runtime by name, such as ``runsc`` or ``kata``; the engine's default if None.
        cpu: Limit on CPU time, in cores.
        mem: Limit on memory, swap included, such as ``"2g"``.
        pids_limit: Limit on processes and threads of the sandbox.
        disk: Limit on what all workspaces of the sandbox hold together, such as ``"1g"``; in memory, within ``mem``.
        shm_size: Limit on shared memory, such as ``"64m"``.
        network: The Docker network to join; no network at all if None.
        start_timeout: Seconds that a sandbox may take to come up, not counting the build of its image.
        host_ip: The host's address to publish a port at, where Unix sockets cannot be shared.
        container_port: The port inside the container, likewise.
        transport: ``unix``, ``tcp``, or ``auto``: Unix sockets where the engine runs on this machine.
        sessions: The most sessions that a sandbox has at a time.
        spare_workers: Workers kept ready, so that a reset need not wait for a fork; each takes some 5 MB.
        preload: Modules that every interpreter has imported already.
        packages: What is to be installed beyond what every sandbox has: ``"toolz"``, ``"numpy>=2"``, ``"cv2"`` ..., see
            ``docs/packages.md``.
        backend: What executes the code of sessions that do not say otherwise, and is ready from the start; ``python`` if None.
        isolation: ``require`` refuses to start where the kernel cannot keep sessions apart, ``prefer`` goes on without; the
            default is ``require`` for ``local`` and ``prefer`` for ``docker``.
        environment: Environment variables for the server, of the docker and the local provider.
        idle_timeout: Seconds after which a sandbox ends by itself when its last client has gone without removing it.
        base_url: The server of the remote provider.
        token: The token of the remote provider's server.
    """

    provider: str = "auto"
    image: str | None = None
    runtime: str | None = None
    cpu: float = 2
    mem: str = "2g"
    pids_limit: int = 256
    disk: str = "512m"
    shm_size: str = "64m"
    network: str | None = None
    start_timeout: float = 60.0
    host_ip: str = "127.0.0.1"
    container_port: int = 8000
    transport: str = "auto"
    sessions: int = 1
    spare_workers: int = 1
    preload: tuple[str, ...] = ("numpy", "pandas", "matplotlib.pyplot")
    packages: tuple[str, ...] = ()
    backend: str | None = None
    isolation: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    idle_timeout: float = 10.0
    base_url: str | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _expect(self.provider in _PROVIDERS, "provider", f"one of {', '.join(_PROVIDERS)}", self.provider)
        _expect(self.transport in _TRANSPORTS, "transport", f"one of {', '.join(_TRANSPORTS)}", self.transport)
        _expect(self.isolation in (*_ISOLATION, None), "isolation", "'require' or 'prefer'", self.isolation)
        for name in ("cpu", "start_timeout", "idle_timeout"):
            value = getattr(self, name)
            valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
            _expect(valid, name, "a positive number", value)
        for name, smallest in (("pids_limit", 1), ("sessions", 1), ("spare_workers", 0), ("container_port", 1)):
            value = getattr(self, name)
            valid = isinstance(value, int) and not isinstance(value, bool) and value >= smallest
            _expect(valid, name, f"a whole number of at least {smallest}", value)
        for name, expected in (("preload", "a list of module names"), ("packages", "a list of names of packages")):
            names: Any = getattr(self, name)
            valid = isinstance(names, (list, tuple)) and all(isinstance(entry, str) for entry in names)
            _expect(valid, name, expected, names)
            object.__setattr__(self, name, tuple(names))
        try:
            resolve(self.packages)
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
            message = "provider='remote' wants base_url=, the address of a running server such as http://127.0.0.1:8000"
            raise ConfigurationError(message)
        if self.base_url:
            Address.of_url(self.base_url)
        if self.provider not in ("remote", "auto") and self.base_url:
            message = f"base_url= goes with provider='remote', not with provider={self.provider!r}"
            raise ConfigurationError(message)

        if self.base_url and self.packages:
            message = "packages= goes with a sandbox that is started here; the server at base_url= has what it was started with"
            raise ConfigurationError(message)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SandboxConfig:
        """Make a configuration of keyword arguments.

        Raises:
            ConfigurationError: There is no such setting, or it has no such value.
        """
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            message = f"Unknown settings: {', '.join(unknown)}. A sandbox has: {', '.join(sorted(known))}"
            raise ConfigurationError(message)
        return cls(**options)


def sandbox_config(config: SandboxConfig | Mapping[str, Any] | None, sandbox_options: Mapping[str, Any]) -> SandboxConfig:
    """Return the one configuration that ``config=`` or single settings mean.

    Raises:
        ConfigurationError: A setting cannot be, or both forms are used.
    """
    if config is not None and sandbox_options:
        message = f"Pass either config= or single settings, not both; got config= and {', '.join(sandbox_options)}"
        raise ConfigurationError(message)
    if isinstance(config, SandboxConfig):
        return config
    if config is not None and not isinstance(config, Mapping):
        message = f"Expected config= to be a SandboxConfig or a mapping of its fields, got {config!r}"
        raise ConfigurationError(message)
    return SandboxConfig.of(sandbox_options if config is None else config)


def parse_size(text: str, name: str = "size") -> int:
    """Return the bytes of a size such as ``"512m"`` or ``"2g"``.

    Raises:
        ConfigurationError: It is no size.
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
