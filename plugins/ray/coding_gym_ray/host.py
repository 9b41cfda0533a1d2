"""``SandboxHost``: the sandboxes of one node of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace

from coding_gym.plugins import listen
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.managed import ManagedSandbox
from coding_gym.sandbox.relay import SandboxRelay

__all__ = ["HostReport", "SandboxHost"]


@dataclass(frozen=True)
class HostReport:
    """Report of a host on its sandboxes.

    Attributes:
        servers: Addresses of its sandboxes, ``http://IP:PORT``. They stay the same when a sandbox is replaced.
        description: One-line description of the first sandbox.
    """

    servers: tuple[str, ...]
    description: str


class SandboxHost:
    """The sandboxes of one node, an asynchronous Ray actor.

    ``RayPool`` starts one on each node that has the resource ``sandbox``. Steps are not Ray calls: clients connect to the
    sandboxes over TCP. The actor starts and replaces the sandboxes, and gives each of them a listening socket. They end with
    the actor, also when it is killed.

    Args:
        config: The sandboxes; with a token, which all clients send.
        sandboxes: Number of sandboxes.
        ip: Address of the node, at which they are reached.
    """

    def __init__(self, config: SandboxConfig, *, sandboxes: int, ip: str) -> None:
        # One session of each is the relay's, which keeps the sandbox alive.
        self._config = replace(config, sessions=config.sessions + 1)
        self._count = sandboxes
        self._ip = ip
        self._relays: list[SandboxRelay] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._report: HostReport | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> HostReport:
        """Start the sandboxes, in parallel, and return their addresses. Idempotent.

        Raises:
            ProviderError: If one of them cannot be started.
            ConfigurationError: If they cannot fulfill the configuration.
        """
        async with self._starting:
            if self._report is None:
                self._report = await self._start()
            return self._report

    async def until_lost(self) -> None:
        """Never return: the call fails when the actor or its node is lost."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Remove the sandboxes. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        relays, self._relays, self._tasks, self._report = self._relays, [], [], None
        await asyncio.gather(*(asyncio.to_thread(relay.close) for relay in relays))

    async def _start(self) -> HostReport:
        try:
            self._relays = [SandboxRelay(ManagedSandbox(self._config), listen(self._ip, 0)) for _ in range(self._count)]
            started = await asyncio.gather(*(asyncio.to_thread(relay.start) for relay in self._relays))
        except BaseException:
            with contextlib.suppress(Exception):
                await self.close()
            raise
        self._tasks = [asyncio.create_task(relay.run()) for relay in self._relays]
        host = f"[{self._ip}]" if ":" in self._ip else self._ip
        return HostReport(tuple(f"http://{host}:{relay.port}" for relay in self._relays), started[0].description)
