"""Routes with one handler per HTTP method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["by_method"]


def by_method(path: str, **handlers: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a single route for all methods of a path, so that a 405 response lists all of them.

    Args:
        path: The path of the route.
        handlers: The handler of each method; the handler of ``GET`` also serves ``HEAD``.
    """

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(handlers))
