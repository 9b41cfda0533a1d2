"""Authentication by bearer tokens, and refusal of requests that other sites' pages make."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.server.api.admission import admit

__all__ = ["SUBPROTOCOL", "TOKEN_SUBPROTOCOL", "BearerAuthMiddleware", "SameOriginMiddleware"]

SUBPROTOCOL = "coding-gym"
"""WebSocket subprotocol of browsers, which the server accepts."""

TOKEN_SUBPROTOCOL = f"{SUBPROTOCOL}.bearer."
"""Prefix of the WebSocket subprotocol that has the token, base64url-encoded: browsers cannot send other headers."""

_OPEN_PATHS = frozenset({"/health"})
_PAGE = frozenset({"/web", "/web/"})
_POLICY_VIOLATION = 1008
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for requests of the server's own pages, and of the user."""

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_BROWSER = "Mozilla/"
"""Prefix of the ``User-Agent`` of every browser."""

_MAX_QUOTED_CHARS = 100
_LOCAL_NAME = "localhost"


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
            await _refuse(
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


class SameOriginMiddleware:
    """ASGI middleware that refuses what a browser requests for the page of another site.

    A browser sends such requests, which can change something, although the page cannot read the responses; and it opens
    WebSocket connections, whose messages the page can read. Programs other than browsers are not affected.

    Args:
        app: The protected ASGI application.
        has_token: Whether the server has a token. Without one, a page could also reach it by a name of its own site, which
            resolves to the server's address (DNS rebinding): browsers may then use only an IP address, ``localhost`` or a name
            without dots.
    """

    def __init__(self, app: ASGIApp, *, has_token: bool) -> None:
        self._app = app
        self._has_token = has_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (reason := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await _refuse(scope, receive, send, 403, reason)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        host = headers.get("host", "")
        if origin is None and site is None and not headers.get("user-agent", "").startswith(_BROWSER):
            return None
        if not self._has_token and not _is_unambiguous(host):
            return (
                "A browser may use this server, which has no token, by its IP address, as localhost or by a name without dots, "
                f"not as {host[:_MAX_QUOTED_CHARS]!r}: use another address, or start the server with a token."
            )
        if scope["type"] == "http" and scope["method"] in _READING:
            return None
        if site is not None:
            if site in _OWN_SITES:
                return None
        elif origin is None or origin.partition("://")[2] == host:
            return None
        source = (origin or "another site")[:_MAX_QUOTED_CHARS]
        return (
            f"This server accepts requests of browsers from its own pages only, not from {source!r}. "
            "A proxy in between must pass on the header Host."
        )


def _token_of(subprotocol: str) -> bytes:
    """Return the token that a subprotocol has, empty if none."""
    if not subprotocol.startswith(TOKEN_SUBPROTOCOL):
        return b""
    encoded = subprotocol.removeprefix(TOKEN_SUBPROTOCOL)
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""


def _is_unambiguous(host: str) -> bool:
    """Return whether the value of a header ``Host`` cannot be a name in the domain of a stranger."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if "." not in name or name.endswith(f".{_LOCAL_NAME}"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(scope: Scope, receive: Receive, send: Send, status_code: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await JSONResponse({"detail": reason}, status_code)(scope, receive, send)


def _is_public(path: str) -> bool:
    """Return whether a path is the page's or that of a static file, which browsers request without the token."""
    return path in _PAGE or path.startswith("/web/static/")
