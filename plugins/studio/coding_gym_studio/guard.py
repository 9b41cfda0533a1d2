"""``Guard``: protection of a server on the user's machine from other users and from pages of other sites."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym_server.same_origin import SameOriginMiddleware, refuse

__all__ = ["Guard", "new_token"]

_TOKEN_BYTES = 24
_TICKETS = "/open/"


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
        self._tickets: dict[str, str] = {}

    def ticket_to(self, address: str) -> str:
        """Return a path that leads to an address of the server, once: for command lines, which other users can read.

        Args:
            address: Path and fragment of a page, with the token.
        """
        path = f"{_TICKETS}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        self._tickets[path] = address
        return path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._from_own_pages(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _is_open(scope["path"]) or self._has_token(scope):
            await self._app(scope, receive, send)
        elif scope["path"].startswith(_TICKETS) and scope["method"] == "GET":
            if address := self._tickets.pop(scope["path"], None):
                answer = RedirectResponse(address, HTTPStatus.SEE_OTHER, {"cache-control": "no-store"})
                await answer(scope, receive, send)
                return
            reason = (
                "This address worked once, and has been opened: open the address that the command printed. If no browser of "
                "yours has opened it, another user of this machine may have: stop the command, and start it without a browser."
            )
            await refuse(scope, receive, send, HTTPStatus.GONE, reason)
        else:
            reason = "This server requires a token: open the address that it printed, with its fragment."
            await refuse(scope, receive, send, HTTPStatus.UNAUTHORIZED, reason)

    def _has_token(self, scope: Scope) -> bool:
        return secrets.compare_digest(Headers(scope=scope).get("authorization", "").encode("latin-1"), self._expected)


def _is_open(path: str) -> bool:
    return path == "/" or path.startswith("/static/")
