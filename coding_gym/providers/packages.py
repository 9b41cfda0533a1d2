"""What the packages of a configuration mean, said once."""

from __future__ import annotations

import functools
import logging

from coding_gym_server.packages import ResolvedPackages, resolve

__all__ = ["resolve_packages"]

_log = logging.getLogger("coding_gym")


@functools.lru_cache
def resolve_packages(packages: tuple[str, ...]) -> ResolvedPackages:
    """Do what ``resolve`` does, and log what was corrected, the first time."""
    resolved = resolve(packages)
    for correction in resolved.corrections:
        _log.warning("packages: %s; add a version, such as >=0, to have it taken literally", correction)
    return resolved
