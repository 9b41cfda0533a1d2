"""Idle shutdown: a sandbox without clients exits by itself if its owner could not remove it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["IdleShutdown"]

_UNCOUNTED_PATHS = frozenset({"/metrics"})
"""What monitoring reads at intervals, which must not keep a sandbox alive whose client is gone."""


class IdleShutdown:
    """ASGI middleware that shuts the server down after a time without connections and requests, other than those for metrics.

    Args:
        app: The application to wrap.
        first_client_within: Seconds to wait for the first client.
        idle_timeout: Seconds to wait for another client after the last one has disconnected.
        fire: Called to shut the server down.
    """

    def __init__(self, app: ASGIApp, *, first_client_within: float, idle_timeout: float, fire: Callable[[], None]) -> None:
        self._app = app
        self._first_client_within = first_client_within
        self._idle_timeout = idle_timeout
        self._on_expired = fire
        self._active = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._arm(self._first_client_within)
            await self._app(scope, receive, send)
            return
        if scope["path"] in _UNCOUNTED_PATHS:
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
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_expired)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
