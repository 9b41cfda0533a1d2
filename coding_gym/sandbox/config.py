"""Sandbox configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, Literal, Self, TypedDict

from coding_gym import plugins
from coding_gym._validation import check_backend, check_count, check_names, check_one_of
from coding_gym.client.address import Address
from coding_gym.doors.egress import Egress
from coding_gym.errors import ConfigurationError
from coding_gym_server.languages import packages_of

__all__ = [
    "DOCKER_OPTIONS",
    "SandboxConfig",
    "SandboxKwargs",
    "StartKwargs",
    "check_variables",
    "parse_size",
    "sandbox_config",
]

DOCKER_OPTIONS = ("image", "runtime", "network", "mounts")
"""Options that only containers have."""

_PROVIDERS = ("auto", "docker", "apptainer", "local", "remote")
_MISSING_OPTIONS = {"apptainer": ("runtime", "network", "mounts"), "local": DOCKER_OPTIONS, "remote": DOCKER_OPTIONS}
_MIN_INODES = 1000
_MIN_SESSION_PIDS = 7
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


_OWN_DIRECTORIES = (
    *("/dev", "/proc", "/sys", "/run", "/etc", "/usr", "/tmp", "/home/user"),
    *("/workspaces", "/opt/coding-gym", "/.workspaces", "/.coding-gym"),
)
"""Directories of sandboxes that nothing is mounted in, over or above."""

_Check = Callable[[str, Any], object]


def parse_size(text: str, name: str = "size") -> int:
    """Return the number of bytes of a size such as ``"512m"`` or ``"2g"``.

    Raises:
        ConfigurationError: If it is not a size.
    """
    match = re.fullmatch(r"([0-9]+)([bkmgt]?)b?", str(text).strip().lower())
    _expect(match is not None and int(match[1]) > 0, name, "a size such as '512m' or '2g'", text)
    assert match is not None
    return int(match[1]) * _UNITS[match[2]]


def _expect(condition: bool, name: str, expected: str, found: object) -> None:
    if not condition:
        message = f"Expected {name}= to be {expected}, got {found!r}"
        raise ConfigurationError(message)


def _option(default: Any, check: _Check, *, hash: bool | None = None) -> Any:
    """Declare an option with its check, which gets its name and value; ``default`` may be a factory."""
    how = {"default_factory": default} if callable(default) else {"default": default}
    return field(**how, hash=hash, metadata={"check": check})


def _optional(check: _Check) -> _Check:
    return lambda name, value: None if value is None else check(name, value)


def _at_least(smallest: int) -> _Check:
    return lambda name, value: check_count(name, value, smallest)


def _one_of(*choices: str, optional: bool = False) -> _Check:
    return lambda name, value: check_one_of(name, value, choices, optional=optional)


def _texts(noun: str) -> _Check:
    def check(name: str, value: Any) -> None:
        valid = isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value)
        _expect(valid, name, f"a list of {noun}", value)

    return check


def _check_size(name: str, value: Any) -> None:
    parse_size(value, name)


def _check_number(name: str, value: Any) -> None:
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
    _expect(valid, name, "a positive number", value)


def _check_bool(name: str, value: Any) -> None:
    _expect(isinstance(value, bool), name, "True or False", value)


def _check_provider(name: str, value: Any) -> None:
    if value not in _PROVIDERS:
        check_one_of(name, value, (*_PROVIDERS, *plugins.names("providers")))


def check_variables(name: str, value: Any) -> None:
    """Check that an option maps names of environment variables to values.

    Raises:
        ConfigurationError: If it does not.
    """
    valid = isinstance(value, Mapping) and all(_is_variable(*item) for item in value.items())
    _expect(valid, name, "a mapping of names to values, both str", value)


def _check_mounts(name: str, value: Any) -> None:
    _expect(isinstance(value, Mapping), name, "a mapping of paths in the sandbox to directories of this machine", value)
    for target, source in value.items():
        valid = isinstance(target, str) and PurePosixPath(target).is_absolute() and os.path.normpath(target) == target
        free = valid and target != "/" and not any(_overlap(target, other) for other in _OWN_DIRECTORIES)
        _expect(
            free and "\0" not in target + str(source),
            name,
            "a path other than those of the sandbox such as '/datasets'",
            target,
        )
        _expect(isinstance(source, (str, os.PathLike)) and os.path.isdir(source), name, "a directory of this machine", source)


def _overlap(path: str, other: str) -> bool:
    return PurePosixPath(path).is_relative_to(other) or PurePosixPath(other).is_relative_to(path)


def _is_variable(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    return bool(name) and "=" not in name and "\0" not in name + value


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """Sandbox configuration: where a sandbox runs, its resources, its server and how it is reached.

    Names and defaults are AgentFly's where it has them. ``SandboxKwargs`` types the same options as keyword arguments.

    Attributes:
        provider: ``auto`` (Docker if an engine answers, else local; Apptainer if ``image`` is a path), ``docker``,
            ``apptainer``, ``local``, ``remote``, or the name of one that a plug-in adds.
        image: Image of the docker provider: the name of any that the engine has or can pull, or the path of a directory with a
            Dockerfile, which is built once (see ``docs/images.md``). Or what Apptainer runs: a ``.sif`` file, a directory or a
            URI. Built from this package's sources if None.
        runtime: Name of an OCI runtime, such as ``runsc`` or ``kata``; the engine's default if None.
        cpu: CPU time, in cores.
        mem: Memory including swap, such as ``"2g"``.
        pids_limit: Number of processes and threads.
        session_pids_limit: Number of processes and threads of a session that has its own user, its interpreter and the
            interpreter's parent included; if None, three quarters of ``pids_limit``, or all with ``sessions=1``.
        disk: Size of the files of a session, such as ``"1g"``; in memory,
            within ``mem``.
        inodes: Number of files and directories of a session; Podman does not
            limit it, and the local provider then limits it in ``/dev/shm`` only.
        shm_size: Size of shared memory, such as ``"64m"``.
        network: Docker network to join; no network access if None.
        mounts: Directories of this machine that sessions read, by the path where they see them, such as
            ``{"/datasets": "/home/me/data"}``; requires an engine on this machine.
        host_ip: Host address of the published port, where Unix sockets cannot be shared.
        transport: ``unix``, ``tcp``, or ``auto``: Unix sockets if the engine runs on this machine.
        start_timeout: Seconds that a sandbox may take to start, excluding the build of its image.
        base_url: Address of the remote provider's server.
        base_urls: Addresses of the remote provider's servers, for a ``SandboxPool`` or a vector environment; all have the same
            ``token``.
        token: Bearer token of the server. If None, a sandbox that is started gets a random one, and none is sent to the remote
            provider's server; ``""`` starts a sandbox without a token.
        sessions: Maximum number of concurrent sessions.
        spare_workers: Workers kept ready, so that a reset does not wait for a fork; each takes about 5 MB.
        preload: Modules imported in advance in every interpreter.
        packages: Packages to install in addition to those of the image: ``"toolz"``, ``"numpy>=2"``, ``"cv2"`` ...; see
            ``docs/packages.md``.
        system_packages: Debian packages to install in addition to those of the image: ``"gcc"``, ``"python3-gi"`` ...; with
            ``local``, this machine must have them. See ``docs/packages.md``.
        languages: Languages of programs besides Python whose compilers and interpreters to install, such as
            ``("cpp", "java")``; with ``local``, this machine must have them. See ``docs/languages.md``.
        backend: Default backend, which is ready from the start; ``python`` if None.
        isolation: ``require`` refuses to start if the kernel or the engine cannot isolate sessions, ``prefer`` continues with
            less isolation; the default is ``require`` for ``local`` and ``prefer`` for ``docker``.
        root: Whether programs of the session are root of their sandbox: they can change all of its files and its users, until
            the next reset. Requires the docker provider, ``sessions=1``, and an engine that permits users for sessions. See
            ``docs/security.md``.
        environment: Environment variables of the server, for providers that start one.
        idle_timeout: Seconds after which a sandbox ends by itself if its last client has disconnected without removing it.
    """

    provider: str = _option("auto", _check_provider)
    image: str | None = None
    runtime: str | None = None
    cpu: float = _option(2, _check_number)
    mem: str = _option("2g", _check_size)
    pids_limit: int = _option(256, _at_least(1))
    session_pids_limit: int | None = _option(None, _optional(_at_least(_MIN_SESSION_PIDS)))
    disk: str = _option("512m", _check_size)
    inodes: int = _option(100_000, _at_least(_MIN_INODES))
    shm_size: str = _option("64m", _check_size)
    network: str | None = None
    mounts: Mapping[str, str] | None = _option(None, _optional(_check_mounts), hash=False)
    host_ip: str = "127.0.0.1"
    transport: str = _option("auto", _one_of("auto", "unix", "tcp"))
    start_timeout: float = _option(60.0, _check_number)
    base_url: str | None = None
    base_urls: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    sessions: int = _option(1, _at_least(1))
    spare_workers: int = _option(1, _at_least(0))
    preload: tuple[str, ...] = _option(("numpy", "pandas", "matplotlib.pyplot"), _texts("module names"))
    packages: tuple[str, ...] = _option((), _texts("names of packages"))
    system_packages: tuple[str, ...] = _option((), _texts("names of Debian packages"))
    languages: tuple[str, ...] = _option((), _texts("names of languages"))
    backend: str | None = _option(None, _optional(lambda _, name: check_backend(name)))
    isolation: Literal["require", "prefer"] | None = _option(None, _optional(_one_of("require", "prefer", optional=True)))
    root: bool = _option(False, _check_bool)
    environment: Mapping[str, str] = _option(dict, check_variables, hash=False)
    idle_timeout: float = _option(10.0, _check_number)

    def __new__(cls, **options: Any) -> Self:
        # Before the generated constructor, whose error for an unknown name is a TypeError without the valid ones.
        check_names(options, cls.__dataclass_fields__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for option in fields(self):
            if check := option.metadata.get("check"):
                check(option.name, getattr(self, option.name))
        for name in ("preload", "packages", "system_packages", "languages"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.packages:
            from coding_gym_server.packages.requirements import resolve

            _check_names_of("packages", resolve, self.packages)
        if self.system_packages:
            from coding_gym_server.packages.system import check_system_packages

            _check_names_of("system_packages", check_system_packages, self.system_packages)
        if self.languages:
            _check_names_of("languages", packages_of, self.languages)
        object.__setattr__(self, "environment", dict(self.environment))
        if self.image is not None and os.fspath(self.image).startswith(("/", ".")):
            object.__setattr__(self, "image", os.path.abspath(self.image))
        if self.mounts is not None:
            mounts = {target: os.path.abspath(source) for target, source in self.mounts.items()}
            object.__setattr__(self, "mounts", mounts)
        self._check_base_urls()
        if self.provider == "remote" and not self.base_url and not self.base_urls:
            message = (
                "provider='remote' requires base_url=, the address of a running server such as http://127.0.0.1:8000, "
                "or base_urls= with several for a SandboxPool"
            )
            raise ConfigurationError(message)
        if self.base_url:
            Address.of_url(self.base_url)
        if self.provider not in ("remote", "auto") and self.base_url:
            message = f"base_url= is only valid with provider='remote', got provider={self.provider!r}"
            raise ConfigurationError(message)
        ignored = [f"{name}=" for name in _MISSING_OPTIONS.get(self.provider, ()) if getattr(self, name) is not None]
        if ignored:
            message = f"provider={self.provider!r} does not have {', '.join(ignored)}: leave one of them out"
            raise ConfigurationError(message)
        if self.root:
            self._check_root()
        addresses = "base_urls" if self.base_urls else "base_url"
        for name in ("packages", "system_packages", "languages"):
            if getattr(self, addresses) and getattr(self, name):
                reason = "the server there has what it was started with"
                message = f"{name}= cannot be combined with {addresses}=: {reason}"
                raise ConfigurationError(message)

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """The Debian packages to install: ``system_packages``, and those of the languages."""
        return tuple(dict.fromkeys((*self.system_packages, *packages_of(self.languages))))

    def _check_root(self) -> None:
        is_container = self.provider in ("docker", "auto") and not self.base_url
        if not is_container or self.sessions > 1:
            message = (
                "root=True requires provider='docker' and sessions=1, got "
                f"provider={self.provider!r} and sessions={self.sessions}"
            )
            raise ConfigurationError(message)

    def _check_base_urls(self) -> None:
        urls: Any = self.base_urls
        valid = isinstance(urls, (list, tuple)) and all(isinstance(url, str) for url in urls)
        # The default is an empty tuple: a list was passed.
        _expect(valid and urls != [], "base_urls", "a list of addresses of running servers", urls)
        object.__setattr__(self, "base_urls", tuple(urls))
        if not urls:
            return
        if self.base_url:
            message = "base_urls= cannot be combined with base_url=: pass all addresses in base_urls="
            raise ConfigurationError(message)
        if self.provider != "remote":
            message = f"base_urls= is only valid with provider='remote', got provider={self.provider!r}"
            raise ConfigurationError(message)
        addresses = [Address.of_url(url).url for url in urls]
        if repeated := sorted({address for address in addresses if addresses.count(address) > 1}):
            message = f"Expected base_urls= to name each server once, got more than once: {', '.join(repeated)}"
            raise ConfigurationError(message)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SandboxConfig:
        """Create a configuration from keyword arguments.

        Raises:
            ConfigurationError: If an option is unknown or invalid.
        """
        # Names that are not text cannot be passed as keywords.
        check_names(options, cls.__dataclass_fields__)
        return cls(**options)


def _check_names_of(option: str, check: Callable[[tuple[str, ...]], object], names: tuple[str, ...]) -> None:
    try:
        check(names)
    except ValueError as error:
        message = f"{option}=: {error}"
        raise ConfigurationError(message) from None


class StartKwargs(TypedDict, total=False):
    """The fields of ``SandboxConfig`` except ``image``, ``base_url``, ``base_urls`` and ``token``, as keyword arguments."""

    provider: str
    runtime: str | None
    cpu: float
    mem: str
    pids_limit: int
    session_pids_limit: int | None
    disk: str
    inodes: int
    shm_size: str
    network: str | Egress | None
    mounts: Mapping[str, str] | None
    host_ip: str
    transport: str
    start_timeout: float
    sessions: int
    spare_workers: int
    preload: Sequence[str]
    packages: Sequence[str]
    system_packages: Sequence[str]
    languages: Sequence[str]
    backend: str | None
    isolation: Literal["require", "prefer"] | None
    root: bool
    environment: Mapping[str, str]
    idle_timeout: float


class SandboxKwargs(StartKwargs, total=False):
    """The fields of ``SandboxConfig`` as keyword arguments."""

    image: str | None
    base_url: str | None
    base_urls: Sequence[str]
    token: str | None


def sandbox_config(
    config: SandboxConfig | Mapping[str, Any] | None, sandbox_options: Mapping[str, Any], others: Iterable[str] = ()
) -> SandboxConfig:
    """Return the configuration passed as ``config=`` or as single options.

    Args:
        config: The complete configuration.
        sandbox_options: The single options.
        others: Names of other valid options, for the message about an unknown one.

    Raises:
        ConfigurationError: If an option is unknown or invalid, or both forms are used.
    """
    check_names(sandbox_options, {*SandboxKwargs.__annotations__, *others})
    if config is not None and sandbox_options:
        message = f"Pass either config= or single options, not both; got config= and {', '.join(sandbox_options)}"
        raise ConfigurationError(message)
    if isinstance(config, SandboxConfig):
        return config
    if config is not None and not isinstance(config, Mapping):
        message = f"Expected config= to be a SandboxConfig or a mapping of its fields, got {config!r}"
        raise ConfigurationError(message)
    return SandboxConfig.of(sandbox_options if config is None else config)
