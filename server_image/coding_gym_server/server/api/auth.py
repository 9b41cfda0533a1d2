"""Authentication by bearer tokens."""

from __future__ import annotations

import base64
import binascii
import secrets

from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.same_origin import refuse
from coding_gym_server.server.api.admission import admit

__all__ = ["SUBPROTOCOL", "TOKEN_SUBPROTOCOL", "BearerAuthMiddleware"]

SUBPROTOCOL = "coding-gym"
"""WebSocket subprotocol of browsers, which the server accepts."""

TOKEN_SUBPROTOCOL = f"{SUBPROTOCOL}.bearer."
"""Prefix of the WebSocket subprotocol that has the token, base64url-encoded: browsers cannot send other headers."""

_OPEN_PATHS = frozenset({"/health"})
_PAGE = frozenset({"/", "/web", "/web/"})


class BearerAuthMiddleware:
    """ASGI middleware that requires ``Authorization: Bearer TOKEN`` on every route except ``/health`` and public ones.

    WebSocket connections may send the token as a subprotocol instead, see ``TOKEN_SUBPROTOCOL``.

    Args:
        app: The protected ASGI application.
        token: The expected token, None if no request requires one.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_authorized(scope):
            admit(scope)
            await self._app(scope, receive, send)
        elif self._is_open(scope):
            await self._app(scope, receive, send)
        else:
            await refuse(
                scope, receive, send, 401, "This server requires a token: send the header 'Authorization: Bearer TOKEN'."
            )

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return path in _OPEN_PATHS or (scope["type"] == "http" and _is_public(path))

    def _is_authorized(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        if any(name == b"authorization" and secrets.compare_digest(value, self._expected) for name, value in scope["headers"]):
            return True
        return any(secrets.compare_digest(token, self._token) for token in map(_token_of, scope.get("subprotocols", ())))


def _token_of(subprotocol: str) -> bytes:
    """Return the token that a subprotocol has, empty if none."""
    if not subprotocol.startswith(TOKEN_SUBPROTOCOL):
        return b""
    encoded = subprotocol.removeprefix(TOKEN_SUBPROTOCOL)
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""


def _is_public(path: str) -> bool:
    """Return whether a path leads to the page or to a static file, which browsers request without the token."""
    return path in _PAGE or path.startswith("/web/static/")
