"""The remote provider: an already running server."""

from __future__ import annotations

from coding_gym.client.address import Address
from coding_gym.sandbox.base import Sandbox, wait_until_ready
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["RemoteSandbox", "start_remote"]


class RemoteSandbox(Sandbox):
    """A running server; ``close`` does not stop it."""

    def _remove(self) -> None:
        pass


def start_remote(config: SandboxConfig) -> RemoteSandbox:
    """Wait for the server at ``config.base_url``.

    Raises:
        SandboxStartError: If it does not answer within ``config.start_timeout``.
    """
    assert config.base_url is not None
    address = Address.of_url(config.base_url, token=config.token)
    wait_until_ready(address, timeout=config.start_timeout, explain_death=lambda: None)
    return RemoteSandbox(address, f"the server at {address}")
