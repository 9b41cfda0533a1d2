"""Resolved packages of a configuration, logged once."""

from __future__ import annotations

import functools
import logging

from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.packages.requirements import ResolvedPackages, resolve

__all__ = ["resolve_packages"]

_log = logging.getLogger("coding_gym")


def resolve_packages(config: SandboxConfig) -> ResolvedPackages:
    """Resolve the packages of a configuration; log names that were not taken literally, once."""
    return _resolve(config.packages, fix_typos=config.fix_typos)


@functools.lru_cache
def _resolve(packages: tuple[str, ...], *, fix_typos: bool) -> ResolvedPackages:
    resolved = resolve(packages, fix_typos=fix_typos)
    for alias in resolved.aliases:
        _log.info("packages: %s", alias)
    for name in resolved.standard:
        _log.warning("packages: %r is a module of the standard library: it is authorized, and nothing is installed", name)
    for correction in resolved.corrections:
        _log.warning("packages: %s; add a version, such as >=0, to use the name literally", correction)
    return resolved
