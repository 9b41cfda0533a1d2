"""Bearer-token authentication, for servers that have a token."""

from __future__ import annotations

import secrets

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["BearerAuthMiddleware"]

_OPEN_PATHS = frozenset({"/health"})
_POLICY_VIOLATION = 1008


class BearerAuthMiddleware:
    """ASGI middleware that requires ``Authorization: Bearer TOKEN`` on every route except ``/health``.

    Args:
        app: The protected ASGI application.
        token: The expected token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in _OPEN_PATHS or self._is_authorized(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            answer = JSONResponse(
                {"detail": "This server requires a token: send the header 'Authorization: Bearer TOKEN'."}, 401
            )
            await answer(scope, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        return any(
            name == b"authorization" and secrets.compare_digest(value, self._expected) for name, value in scope["headers"]
        )
