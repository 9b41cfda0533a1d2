"""``serve_pages``: pages for the user of this machine, at an address with a token."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from coding_gym.plugins import listen
from coding_gym_studio.guard import Guard, new_token

__all__ = ["serve_pages"]

_SHUTDOWN_SECONDS = 1


def serve_pages(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    route: str = "",
    on_start: Callable[[str], object],
    open_browser: bool = False,
    token: str | None = None,
) -> None:
    """Serve an application behind a ``Guard`` until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        app: The application. Its page takes the token from the fragment of its address.
        host: Address to listen on.
        port: Port to listen on, 0 for a free one.
        route: Fragment route that the page opens with, such as ``/episode/3``.
        on_start: Called with the address, ``http://HOST:PORT/#token=TOKEN``, once the server accepts connections.
        open_browser: Whether to open the address in the user's browser.
        token: The token; random if None.

    Raises:
        ConfigurationError: If the port is in use, or the address is not available.
    """
    token = token or new_token()
    with listen(host, port) as listener:
        guard = Guard(app, token=token)
        url, page = _url(listener, host), f"/#token={token}{f'&route={route}' if route else ''}"

        def on_ready() -> None:
            on_start(f"{url}{page}")
            if open_browser:
                # In a thread: some browsers do not return until they are closed.
                address = f"{url}{guard.ticket_to(page)}"
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(guard, listener, on_ready))


async def _serve(app: ASGIApp, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    options = uvicorn.Config(
        app,
        # Pages follow streams for as long as they are open.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        log_level="warning",
        access_log=False,
        # Pages have none, and the library takes as long to import as the server.
        ws="none",
        server_header=False,
    )
    server = _Server(options, on_ready)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Server that calls a function once it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _url(listener: socket.socket, host: str) -> str:
    address = listener.getsockname()
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{shown}]:{address[1]}" if ":" in shown else f"http://{shown}:{address[1]}"
