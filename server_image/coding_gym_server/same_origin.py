"""Refusal of what browsers request for pages of other sites, for all HTTP servers of this package."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["SameOriginMiddleware", "refuse"]

_POLICY_VIOLATION = 1008
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for requests of the server's own pages, and of the user."""

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site", b"accept-language"})
"""Headers that browsers send. The last is in all their requests: scripts can replace its value, but not remove it."""

_BROWSER = b"Mozilla/"
"""Prefix of the ``User-Agent`` of every browser."""

_MAX_QUOTED_CHARS = 100
_LOCAL_NAME = "localhost"


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
            await refuse(scope, receive, send, 403, reason)

    def _refusal(self, scope: Scope) -> str | None:
        # Of programs, which send most requests, without decoding their headers.
        raw = dict(scope["headers"])
        if _OF_BROWSERS.isdisjoint(raw) and not raw.get(b"user-agent", b"").startswith(_BROWSER):
            return None
        headers = Headers(scope=scope)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        host = headers.get("host", "")
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


async def refuse(scope: Scope, receive: Receive, send: Send, status_code: int, reason: str) -> None:
    """Answer a request with an error, or close a WebSocket connection before it is accepted.

    Args:
        scope: Scope of the request.
        receive: Receives its events.
        send: Sends the answer.
        status_code: Status code of HTTP.
        reason: What is wrong, for the user.
    """
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await JSONResponse({"detail": reason}, status_code, {"cache-control": "no-store"})(scope, receive, send)
