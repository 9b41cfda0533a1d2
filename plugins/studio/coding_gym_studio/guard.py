"""``Guard``: protection of a server on the user's machine from other users and from pages of other sites."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Guard", "new_token"]

_TOKEN_BYTES = 24
_POLICY_VIOLATION = 1008
_OWN = ("same-origin", "none")


def new_token() -> str:
    """Return a random token of 192 bits, for the fragment of an address."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class Guard:
    """ASGI middleware that admits the server's own pages only. Each request passes three checks.

    1. ``Host`` is an IP address, ``localhost``, or a name of this machine. A page of another site cannot reach the server under
       its own name, even if it changes what that name resolves to (DNS rebinding).
    2. Browsers send neither ``Sec-Fetch-Site`` nor ``Origin`` of another site, except for opening one of ``open_paths``.
    3. ``Authorization: Bearer TOKEN``, except for ``open_paths``, which hold no data. The token keeps out other users of the
       machine, who can connect to the port.

    Args:
        app: The protected application.
        token: The expected token.
        hosts: Further permitted names of ``Host``, such as the one that the server listens on.
        open_paths: Paths that require no token.
        open_prefixes: Beginnings of further such paths.

    Example:
        >>> app = Guard(Starlette(routes=routes), token=new_token())  # doctest: +SKIP
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Collection[str] = (),
        open_paths: Collection[str] = ("/",),
        open_prefixes: Collection[str] = ("/static/",),
    ) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._open_paths = frozenset(open_paths)
        self._open_prefixes = tuple(open_prefixes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            status, reason = refusal
            answer = JSONResponse({"detail": reason}, status, headers={"Cache-Control": "no-store"})
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Return the status and the reason with which to refuse a request, None to admit it."""
        headers = Headers(scope=scope)
        path = scope["path"]
        is_open = path in self._open_paths or path.startswith(self._open_prefixes)
        host = headers.get("host", "")
        if not self._is_own_name(host):
            return HTTPStatus.MISDIRECTED_REQUEST, f"This server has no name {host!r:.200}: open the address that it printed."
        if not (_is_same_origin(headers, host) or (is_open and _is_opened(headers))):
            return HTTPStatus.FORBIDDEN, "This server answers its own pages only, not those of other sites."
        if not is_open and not secrets.compare_digest(headers.get("authorization", "").encode("latin-1"), self._expected):
            return HTTPStatus.UNAUTHORIZED, "This server requires a token: open the address that it printed, with its fragment."
        return None

    def _is_own_name(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name:
            return False
        with contextlib.suppress(ValueError):
            # An address, unlike a name, is not resolved: it is the server's.
            ipaddress.ip_address(name)
            return True
        return name in self._hosts


def _is_same_origin(headers: Headers, host: str) -> bool:
    if headers.get("sec-fetch-site", "none") not in _OWN:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        # ``null`` is the origin of sandboxed frames and of files.
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _is_opened(headers: Headers) -> bool:
    """Return whether a browser opens a page in a tab, rather than in a frame, or loads it from a script."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
