"""Command-line arguments of the server that all providers share."""

from __future__ import annotations

from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym.sandbox.packages import resolve_packages

__all__ = ["server_arguments", "session_user_arguments"]

_SLACK_SECONDS = 5.0


def server_arguments(config: SandboxConfig) -> list[str]:
    """Return the arguments for the number of sessions, their environment, and the server's idle timeouts."""
    packages = resolve_packages(config)
    return [
        *("--max-sessions", str(config.sessions)),
        *("--spare-workers", str(config.spare_workers)),
        *(("--backend", config.backend) if config.backend is not None else ()),
        *("--preload", ",".join(config.preload)),
        *("--max-inodes", str(config.inodes)),
        *("--first-client-within", str(config.start_timeout + _SLACK_SECONDS)),
        *("--idle-timeout", str(config.idle_timeout)),
        *(("--network",) if config.network else ()),
        *(("--authorized-imports", ",".join(packages.modules)) if packages.modules else ()),
        *(("--distributions", ",".join(packages.distributions)) if packages.distributions else ()),
    ]


def session_user_arguments(config: SandboxConfig, shared_user_reason: str = "") -> list[str]:
    """Return the arguments about the users and file systems of sessions.

    Args:
        config: The sandbox's configuration.
        shared_user_reason: The reason why sessions cannot have users; empty to try to give them users.
    """
    if not config.session_users:
        return []
    return [
        "--session-users",
        *(("--session-root",) if config.root else ()),
        *("--session-disk-bytes", str(parse_size(config.disk))),
        *(("--session-processes", str(config.session_pids_limit)) if config.session_pids_limit is not None else ()),
        *(("--shared-user-reason", shared_user_reason) if shared_user_reason else ()),
    ]
