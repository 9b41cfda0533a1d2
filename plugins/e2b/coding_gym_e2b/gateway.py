"""The gateway: an application that speaks E2B's control plane, envd and code interpreter on one port."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coding_gym.plugins import import_extra
from coding_gym_e2b.control import control_routes
from coding_gym_e2b.envd import EnvdRequests, envd_routes
from coding_gym_e2b.failures import ApiError, api_response
from coding_gym_e2b.hosts import Hosts
from coding_gym_e2b.interpreter import interpreter_routes
from coding_gym_e2b.metrics import metrics_route
from coding_gym_e2b.registry import SandboxRegistry
from coding_gym_e2b.settings import GatewaySettings
from coding_gym_e2b.template_routes import template_routes
from coding_gym_e2b.templates import Templates
from coding_gym_server.same_origin import SameOriginMiddleware
from coding_gym_server.server.api.admission import admit

__all__ = ["Gateway"]


class Gateway:
    """The gateway.

    Args:
        settings: Its settings.

    Raises:
        ConfigurationError: If the library for uploads is not installed.

    Attributes:
        app: Its ASGI application, to be served between ``start`` and ``close``.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        import_extra("python_multipart", extra="e2b")
        self._hosts = Hosts(settings)
        self._registry = SandboxRegistry(self._hosts)
        self._templates = Templates(settings, self._registry)
        requests = EnvdRequests(self._registry)
        upload, others = template_routes(self._templates)
        # Requests to these have the token of a sandbox, a signature or another secret.
        keyless = [*envd_routes(requests), *interpreter_routes(requests), upload]
        app = Starlette(
            routes=[
                *keyless,
                *control_routes(self._registry, self._templates, root=settings.root),
                *others,
                metrics_route(self._hosts, self._registry),
            ],
            exception_handlers={ApiError: _refuse, HTTPException: _refuse_http},
        )
        self.app: ASGIApp = SameOriginMiddleware(_ApiKey(app, settings, keyless), has_token=settings.token is not None)

    async def start(self) -> str:
        """Start the first sandbox, and return its description.

        Raises:
            ProviderError: If it does not start.
        """
        return await self._hosts.warm_up()

    async def close(self) -> None:
        """Remove all sandboxes."""
        await self._templates.close()
        self._registry.close()
        await self._hosts.close()


class _ApiKey:
    """Refuses requests without the API key, except those to some routes.

    Args:
        app: The application.
        settings: The settings, which have the key.
        keyless: The routes that need no key, which come first in the application.
    """

    def __init__(self, app: ASGIApp, settings: GatewaySettings, keyless: Sequence[Route]) -> None:
        self._app = app
        self._keyless = keyless
        self._keys = None if settings.token is None else (settings.token, settings.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_keyless(scope):
            if not self._has_key(Request(scope)):
                await api_response(ApiError(401, "The API key is missing or wrong"))(scope, receive, send)
                return
            admit(scope)
        await self._app(scope, receive, send)

    def _has_key(self, request: Request) -> bool:
        if self._keys is None:
            return True
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = (request.headers.get("x-api-key", ""), bearer)
        matches = [_equal(text, key) for text in given for key in self._keys]
        return any(matches)

    def _is_keyless(self, scope: Scope) -> bool:
        # As the application matches it: another reading of the path could be deceived.
        return any(route.matches(scope)[0] is Match.FULL for route in self._keyless)


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(errors="surrogatepass"), second.encode(errors="surrogatepass"))


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return api_response(error)


def _refuse_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return api_response(ApiError(error.status_code, error.detail))
