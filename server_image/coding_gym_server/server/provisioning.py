"""Provisioning of a server's packages: installation, discovery and authorization of their modules."""

from __future__ import annotations

import logging
import shutil
import sys
import time

from msgspec.structs import replace

from coding_gym_server.packages.distributions import missing, modules_of
from coding_gym_server.packages.install import install
from coding_gym_server.packages.overlay import python_path
from coding_gym_server.packages.requirements import resolve
from coding_gym_server.protocol import ServerConfig

__all__ = ["provide"]

_DIRECTORY = "packages"

_log = logging.getLogger(__name__)


def provide(config: ServerConfig) -> ServerConfig:
    """Install ``config.packages``, and make them or those of ``config.overlay`` importable in this process.

    Args:
        config: The server's configuration.

    Returns:
        The configuration with the overlay and all authorized modules.

    Raises:
        ValueError: If a package is not a valid requirement, or has a suspicious or ambiguous name.
        InstallationError: If pip fails. The partial installation is removed.
    """
    if config.packages:
        config = _install(config)
    if config.overlay is not None:
        sys.path.extend(python_path(config.overlay))
    modules = {*config.authorized_imports, *modules_of(config.distributions)}
    return replace(config, authorized_imports=tuple(sorted(modules)))


def _install(config: ServerConfig) -> ServerConfig:
    # An installation can take minutes, so log its progress despite the default level.
    _log.setLevel(logging.INFO)
    resolved = resolve(config.packages)
    for alias in resolved.aliases:
        _log.info("packages: %s", alias)
    overlay = None
    if requirements := missing(resolved.requirements):
        # Below the workspaces, because other directories of a container may be read-only or mounted noexec.
        overlay = config.workspaces / _DIRECTORY
        shutil.rmtree(overlay, ignore_errors=True)
        _log.info("installing %s", ", ".join(requirements))
        started_at = time.monotonic()
        try:
            install(requirements, overlay=overlay, cache=False)
        except BaseException:
            shutil.rmtree(overlay, ignore_errors=True)
            raise
        _log.info("installed in %.1f s", time.monotonic() - started_at)
    return replace(
        config,
        overlay=overlay,
        distributions=(*config.distributions, *resolved.distributions),
        authorized_imports=(*config.authorized_imports, *resolved.modules),
    )
