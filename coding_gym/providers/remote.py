"""The remote provider: a server that somebody else runs."""

from __future__ import annotations

from coding_gym.client.address import Address
from coding_gym.config import SandboxConfig
from coding_gym.providers.base import Sandbox, wait_until_ready

__all__ = ["RemoteSandbox", "start_remote"]


class RemoteSandbox(Sandbox):
    """A server at an address. Closing it leaves it running."""

    def _remove(self) -> None:
        pass


def start_remote(config: SandboxConfig) -> RemoteSandbox:
    """Wait for the server at ``config.base_url``.

    Raises:
        SandboxStartError: It does not answer within ``config.start_timeout``.
    """
    assert config.base_url is not None
    address = Address.of_url(config.base_url, token=config.token)
    wait_until_ready(address, timeout=config.start_timeout, explain_death=lambda: None)
    return RemoteSandbox(address, f"the server at {address}")
