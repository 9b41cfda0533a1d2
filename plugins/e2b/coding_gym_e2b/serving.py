"""Serving the gateway at an address."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn

from coding_gym_e2b.connections import ClientConnection
from coding_gym_e2b.gateway import Gateway
from coding_gym_e2b.settings import GatewaySettings

__all__ = ["serve_gateway"]

_SHUTDOWN_SECONDS = 2


async def serve_gateway(settings: GatewaySettings, listener: socket.socket, *, on_start: Callable[[str], None]) -> None:
    """Serve the gateway until Ctrl-C, SIGTERM or SIGHUP, and remove its sandboxes then.

    Args:
        settings: The settings.
        listener: The socket, see ``coding_gym.plugins.listen``.
        on_start: Called with the description of the first sandbox once it has started.

    Raises:
        ProviderError: If the first sandbox does not start.
    """
    gateway = Gateway(settings)
    try:
        on_start(await gateway.start())
        options = uvicorn.Config(
            gateway.app,
            # Clients follow streams for as long as they like.
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http=ClientConnection,
        )
        server = uvicorn.Server(options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: setattr(server, "should_exit", True))
        await server.serve(sockets=[listener])
    finally:
        await gateway.close()
