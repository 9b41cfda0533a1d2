"""Packages of a configuration: those of Python, resolved, and those of the machine, for local sandboxes."""

from __future__ import annotations

import functools
import logging
import subprocess

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.languages import PYTHON, find_language
from coding_gym_server.packages.requirements import ResolvedPackages, resolve

__all__ = ["check_installed_on_machine", "check_languages_on_machine", "resolve_packages"]

_log = logging.getLogger("coding_gym")


def resolve_packages(config: SandboxConfig) -> ResolvedPackages:
    """Resolve the packages of a configuration; log names that were not taken literally, once."""
    return _resolve(config.packages)


@functools.lru_cache
def _resolve(packages: tuple[str, ...]) -> ResolvedPackages:
    resolved = resolve(packages)
    for alias in resolved.aliases:
        _log.info("packages: %s", alias)
    for name in resolved.standard:
        _log.warning("packages: %r is a module of the standard library: it is authorized, and nothing is installed", name)
    return resolved


def check_installed_on_machine(names: tuple[str, ...]) -> None:
    """Check that this machine, whose programs and libraries local sandboxes use, has Debian packages.

    Raises:
        ConfigurationError: If it lacks any of them.
    """
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        message = (
            f"system_packages= is an option of the docker provider. A local sandbox has what this machine has, which lacks "
            f"{', '.join(missing)}: run 'apt install {' '.join(missing)}', or pass provider='docker'"
        )
        raise ConfigurationError(message)


def check_languages_on_machine(names: tuple[str, ...]) -> None:
    """Check that this machine, whose compilers and interpreters local sandboxes use, has those of languages.

    Raises:
        ConfigurationError: If it lacks any of them.
    """
    for name in names:
        if name != PYTHON and (missing := (language := find_language(name)).missing()):
            message = (
                f"A local sandbox has the languages that this machine has, which lacks {', '.join(missing)} for {name}: run "
                f"{language.installation!r}, or pass provider='docker'"
            )
            raise ConfigurationError(message)


def _is_installed(package: str) -> bool:
    name, _, version = package.partition("=")
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}\n", name]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        # Another distribution than Debian.
        return False
    return "installed" in found[::2] and (not version or version in found[1::2])
