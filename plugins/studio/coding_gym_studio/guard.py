"""``Guard``: protection of a server on the user's machine from other users and from pages of other sites."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.web.access import SameOriginMiddleware, refuse

__all__ = ["Guard", "new_token"]

_TOKEN_BYTES = 24


def new_token() -> str:
    """Return a random token of 192 bits, for the fragment of an address."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class Guard:
    """ASGI middleware that admits the server's own pages only, see ``SameOriginMiddleware``, and them only with a token.

    The token keeps out other users of the machine, who can connect to the port, and pages that reach the server by a name of
    their own (DNS rebinding). Without it, there are only the page and its static files, which hold no data.

    Args:
        app: The protected application.
        token: The expected token, in ``Authorization: Bearer TOKEN``.

    Example:
        >>> app = Guard(Starlette(routes=routes), token=new_token())  # doctest: +SKIP
    """

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._from_own_pages = SameOriginMiddleware(self._answer, has_token=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._from_own_pages(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _is_open(scope["path"]) or self._has_token(scope):
            await self._app(scope, receive, send)
        else:
            reason = "This server requires a token: open the address that it printed, with its fragment."
            await refuse(scope, receive, send, HTTPStatus.UNAUTHORIZED, reason)

    def _has_token(self, scope: Scope) -> bool:
        return secrets.compare_digest(Headers(scope=scope).get("authorization", "").encode("latin-1"), self._expected)


def _is_open(path: str) -> bool:
    return path == "/" or path.startswith("/static/")
