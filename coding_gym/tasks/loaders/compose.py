"""Compose files with one service, which is the Dockerfile beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coding_gym._optional import import_extra
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.folder_files import text_of

__all__ = ["ComposeService", "decode_yaml", "find_compose_file", "read_service", "size_of"]

_NAME = "docker-compose.yaml"
"""The only one that the harnesses of both formats read: others are material of a task."""

_IGNORED = frozenset(
    ("container_name", "expose", "hostname", "init", "platform", "ports", "pull_policy", "restart", "stdin_open", "tty")
)
"""Fields that make no difference to what programs of a session do."""

_COMMAND = re.compile(r"(?:sh|bash|/bin/sh|/bin/bash)?(?: ?-c)? ?(?:sleep infinity|tail -f /dev/null|sleep \d+d?)")
_VARIABLE = re.compile(r"\$\{?(\w+)[^}]*\}?")
_LOGS = re.compile(r"\$\{T_BENCH_\w+\}:\$\{T_BENCH_\w+\}(?::rw)?")
_WITHOUT_NETWORK = "none"


class ComposeService(NamedTuple):
    """The service of a compose file.

    Attributes:
        image: Name of its image; empty if it is built from the Dockerfile.
        environment: Its environment variables.
        cpu: Its limit of CPU time, in cores.
        mem: Its limit of memory, such as ``"2g"``.
        directory: Its working directory; empty for that of the image.
        network: Whether it has a network.
    """

    image: str = ""
    environment: Mapping[str, str] = {}
    cpu: float | None = None
    mem: str | None = None
    directory: str = ""
    network: bool = True


def find_compose_file(directory: Path) -> Path | None:
    """Return the compose file of a directory; None if it has none."""
    path = directory / _NAME
    return path if path.exists() else None


def decode_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        ConfigurationError: If PyYAML is not installed, or the file is not YAML.
    """
    yaml = import_extra("yaml", extra="tasks")
    try:
        return yaml.safe_load(text_of(path))
    except (yaml.YAMLError, RecursionError) as error:
        message = f"Expected {path} to be YAML: {error}"
        raise ConfigurationError(message) from error


def read_service(path: Path, variables: Mapping[str, str]) -> ComposeService:
    """Return the only service of a compose file.

    Args:
        path: The file.
        variables: Variables that it may refer to.

    Raises:
        ConfigurationError: If it has several services, or a field that a single session does not have.
    """
    content = decode_yaml(path)
    services = content.get("services") if isinstance(content, dict) else None
    if not isinstance(services, dict) or not services:
        message = f"Expected {path} to have a service"
        raise ConfigurationError(message)
    if len(services) > 1:
        message = f"{path} has {len(services)} services ({', '.join(map(str, services))}): a session is one container"
        raise ConfigurationError(message)
    for name in content:
        if name not in ("services", "version", "name"):
            message = f"{path}: {name}: a session has no {name} of its own"
            raise ConfigurationError(message)
    [service] = services.values()
    try:
        return _read(service if isinstance(service, dict) else {}, variables)
    except (ConfigurationError, TypeError, ValueError, AttributeError) as error:
        message = f"{path}: {error}"
        raise ConfigurationError(message) from error


def _read(service: dict[str, Any], variables: Mapping[str, str]) -> ComposeService:
    """Return a service.

    Raises:
        ValueError: If a field is not supported; the message names it.
        TypeError: If a field has another type than it should.
        AttributeError: If a field has another type than it should.
    """
    found = ComposeService()
    is_built = False
    for name, value in service.items():
        match name:
            case "build":
                _expect_directory(value)
                is_built = True
            case "image":
                # What is built has any name.
                found = found._replace(image=str(value))
            case "command" | "entrypoint":
                words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
                _expect(_COMMAND.fullmatch(words) is not None, name, words, "sessions run no command but to sleep")
            case "environment":
                found = found._replace(environment=_environment_of(value, variables))
            case "volumes":
                kept = [volume for volume in value if not (isinstance(volume, str) and _LOGS.fullmatch(volume.strip()))]
                _expect(not kept, name, kept, "sessions mount nothing of this machine")
            case "working_dir":
                found = found._replace(directory=str(value))
            case "network_mode":
                _expect(value in (_WITHOUT_NETWORK, "bridge"), name, value, "sessions have a network of their own, or none")
                found = found._replace(network=value != _WITHOUT_NETWORK)
            case "mem_limit":
                found = found._replace(mem=size_of(value))
            case "cpus":
                found = found._replace(cpu=float(value))
            case "deploy":
                limits = _limits_of(value)
                found = found._replace(
                    cpu=float(limits["cpus"]) if "cpus" in limits else found.cpu,
                    mem=size_of(limits["memory"]) if "memory" in limits else found.mem,
                )
            case _:
                _expect(name in _IGNORED, str(name), value, "sessions have no such option")
    return found._replace(image="") if is_built else found


def _expect(condition: bool, name: str, value: object, reason: str) -> None:
    if not condition:
        message = f"{name}: {str(value)[:100]!r} is not supported: {reason}"
        raise ValueError(message)


def _expect_directory(build: Any) -> None:
    options = {"context": build} if isinstance(build, str) else dict(build)
    for name, value in options.items():
        expected = {"context": (".", "./", "${CONTEXT_DIR}"), "dockerfile": ("Dockerfile", "./Dockerfile")}.get(name, ())
        _expect(value in expected, f"build.{name}", value, "the image is that of the Dockerfile beside the file")


def _environment_of(value: Any, variables: Mapping[str, str]) -> dict[str, str]:
    pairs = [str(entry).partition("=")[::2] for entry in value] if isinstance(value, list) else value.items()
    found = {}
    for name, text in pairs:

        def replaced(match: re.Match[str], name: str = name) -> str:
            _expect(match[1] in variables, f"environment.{name}", match[0], "variables of this machine are no part of a task")
            return variables[match[1]]

        found[str(name)] = _VARIABLE.sub(replaced, "" if text is None else str(text))
    return found


def _limits_of(deploy: dict[str, Any]) -> dict[str, Any]:
    resources = deploy.get("resources") or {}
    others = {*deploy} - {"resources"} | {*resources} - {"limits", "reservations"}
    _expect(not others, "deploy", sorted(others), "sessions have limits of CPU time and memory only")
    _expect("devices" not in (resources.get("reservations") or {}), "deploy.resources", "devices", "sessions have no devices")
    limits = dict(resources.get("limits") or {})
    _expect({*limits} <= {"cpus", "memory"}, "deploy.resources.limits", sorted(limits), "sessions have no others")
    return limits


def size_of(value: object) -> str:
    """Return a size in MiB, such as ``"512m"``, of one that may be a fraction.

    Raises:
        ConfigurationError: If it is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(value).strip().lower())
    if match is None:
        message = f"Expected a size, such as 2g or 512m, got {value!r:.100}"
        raise ConfigurationError(message)
    factor = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[match[2]]
    return f"{max(1, round(float(match[1]) * factor / (1 << 20)))}m"
