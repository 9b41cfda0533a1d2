"""The dead-man's switch: a sandbox whose clients are gone ends by itself, even if nobody was left to remove it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["DeadManSwitch"]


class DeadManSwitch:
    """ASGI middleware that counts connections and requests, and fires when there have been none for a while.

    Args:
        app: The application whose connections count.
        first_client_within: Seconds to wait for the first one.
        idle_timeout: Seconds to wait for another after the last one has gone.
        fire: What to do then.
    """

    def __init__(self, app: ASGIApp, *, first_client_within: float, idle_timeout: float, fire: Callable[[], None]) -> None:
        self._app = app
        self._first_client_within = first_client_within
        self._idle_timeout = idle_timeout
        self._fire = fire
        self._active = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._arm(self._first_client_within)
            await self._app(scope, receive, send)
            return
        self._active += 1
        self._disarm()
        try:
            await self._app(scope, receive, send)
        finally:
            self._active -= 1
            if not self._active:
                self._arm(self._idle_timeout)

    def _arm(self, delay: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
