"""``LazyRoutes``: routes of an interface that is imported at its first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

__all__ = ["LazyRoutes"]

_ROUTE = "coding_gym.route"
"""Key of the route that matches, in the scope of a request."""


class LazyRoutes(BaseRoute):
    """Routes that are made at the first request to one of their paths.

    Args:
        paths: Beginnings of their paths.
        make: Imports what they need, and returns them.
    """

    def __init__(self, *paths: str, make: Callable[[], Sequence[BaseRoute]]) -> None:
        self._paths = paths
        self._make = make
        self._routes: Sequence[BaseRoute] | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how the routes match a request, and what to add to its scope."""
        partial: tuple[Match, Scope] = Match.NONE, {}
        if scope["type"] not in ("http", "websocket") or not scope["path"].startswith(self._paths):
            return partial
        if self._routes is None:
            self._routes = self._make()
        for route in self._routes:
            match, added = route.matches(scope)
            if match is Match.FULL:
                return match, {**added, _ROUTE: route}
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, {**added, _ROUTE: route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request that matches."""
        await scope[_ROUTE].handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Raise an error: the routes have no names."""
        raise NoMatchFound(name, path_params)
