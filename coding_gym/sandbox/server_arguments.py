"""Command-line arguments of the server that all providers share."""

from __future__ import annotations

from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.packages import resolve_packages

__all__ = ["server_arguments"]

_SLACK_SECONDS = 5.0


def server_arguments(config: SandboxConfig) -> list[str]:
    """Return the arguments for the number of sessions, their environment, and the server's idle timeouts."""
    packages = resolve_packages(config)
    return [
        *("--max-sessions", str(config.sessions)),
        *("--spare-workers", str(config.spare_workers)),
        *(("--backend", config.backend) if config.backend is not None else ()),
        *("--preload", ",".join(config.preload)),
        *("--first-client-within", str(config.start_timeout + _SLACK_SECONDS)),
        *("--idle-timeout", str(config.idle_timeout)),
        *(("--network",) if config.network else ()),
        *(("--authorized-imports", ",".join(packages.modules)) if packages.modules else ()),
        *(("--distributions", ",".join(packages.distributions)) if packages.distributions else ()),
    ]
