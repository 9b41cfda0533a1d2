"""Routes with one handler per HTTP method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["InvalidFlagError", "by_method", "flag"]

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class InvalidFlagError(ValueError):
    """A query parameter is neither true nor false."""


def flag(request: Request, name: str) -> bool:
    """Return a query parameter that is true or false; false if it is absent.

    Raises:
        InvalidFlagError: If it is neither.
    """
    value = request.query_params.get(name, "false").lower()
    if value not in _FLAGS:
        message = f"Expected {name}= to be true or false, got {value!r}"
        raise InvalidFlagError(message)
    return _FLAGS[value]


def by_method(path: str, **handlers: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a single route for all methods of a path, so that a 405 response lists all of them.

    Args:
        path: The path of the route.
        handlers: The handler of each method; the handler of ``GET`` also serves ``HEAD``.
    """

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(handlers))
