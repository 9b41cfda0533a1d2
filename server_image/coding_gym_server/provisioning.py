"""What a server does for its packages before it serves: installs what is asked for, finds what there is, authorises it."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from dataclasses import replace

from coding_gym_server.config import ServerConfig
from coding_gym_server.distributions import missing, modules_of
from coding_gym_server.installation import install
from coding_gym_server.overlay import python_path
from coding_gym_server.packages import resolve

__all__ = ["provide"]

_DIRECTORY = "packages"

_log = logging.getLogger(__name__)


def provide(config: ServerConfig) -> ServerConfig:
    """Install ``config.packages`` and make them, or those of ``config.overlay``, known to this process.

    Returns:
        The configuration with the overlay and with all modules that are authorised.

    Raises:
        ValueError: One of the packages has no name that can be.
        InstallationError: pip refused; nothing is left.
    """
    if config.packages:
        config = _install(config)
    if config.overlay is not None:
        sys.path.extend(python_path(config.overlay))
    modules = {*config.authorized_imports, *modules_of(config.distributions)}
    return replace(config, authorized_imports=tuple(sorted(modules)))


def _install(config: ServerConfig) -> ServerConfig:
    # The default level leaves out what is usual, but whoever waits for minutes wants to know why.
    _log.setLevel(logging.INFO)
    resolved = resolve(config.packages)
    for correction in resolved.corrections:
        _log.warning("packages: %s", correction)
    overlay = None
    if wanted := missing(resolved.requirements):
        # Below the workspaces, for the rest of a container may be read-only, or not allow code to be loaded from it.
        overlay = config.workspaces / _DIRECTORY
        shutil.rmtree(overlay, ignore_errors=True)
        _log.info("installing %s", ", ".join(wanted))
        started_at = time.monotonic()
        try:
            install(wanted, overlay=overlay, cache=False)
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
