"""What a sandbox's configuration means for its server."""

from __future__ import annotations

from msgspec.structs import replace

from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym_server.protocol import ServerConfig

__all__ = ["server_config"]

_SLACK_SECONDS = 5.0


def server_config(config: SandboxConfig, *, shared_user_reason: str = "") -> ServerConfig:
    """Return the part of a server's configuration that does not depend on the provider.

    Args:
        config: The sandbox's configuration.
        shared_user_reason: The reason why sessions cannot have users; empty to try to give them users.
    """
    server = ServerConfig(
        max_sessions=config.sessions,
        spare_workers=config.spare_workers,
        backend=config.backend,
        preload=config.preload,
        max_inodes=config.inodes,
        first_client_within=config.start_timeout + _SLACK_SECONDS,
        idle_timeout=config.idle_timeout,
        network=bool(config.network),
        shared_user_reason=shared_user_reason,
        session_root=config.root,
        session_disk_bytes=parse_size(config.disk),
        session_processes=config.session_pids_limit,
    )
    if not config.packages:
        return server
    from coding_gym.sandbox.packages import resolve_packages

    packages = resolve_packages(config)
    return replace(server, authorized_imports=packages.modules, distributions=packages.distributions)
