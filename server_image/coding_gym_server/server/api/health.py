"""Route ``/health``, and the responses to requests that fail in any interface."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.protocol import MAX_FRAME_BYTES, PROTOCOL_VERSION
from coding_gym_server.server.api.codec import BadRequestError, encode_json, field_of, value_error
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionRegistry
from coding_gym_server.server.wear import Wear

__all__ = ["at_capacity", "bad_option", "bad_request", "body_too_large", "client_gone", "health_route", "json_response"]


def health_route(sessions: SessionRegistry, isolation: IsolationReport, wear: Wear) -> Route:
    """Return the route of the health check.

    Args:
        sessions: The open sessions.
        isolation: The isolation mechanisms in effect.
        wear: Finds out whether the server should be replaced.
    """

    async def health(_: Request) -> Response:
        report = {
            "status": "healthy",
            "protocol_version": PROTOCOL_VERSION,
            "isolation": isolation,
            "active_sessions": sessions.count,
            "max_sessions": sessions.limit,
            "worn": wear.reason(),
        }
        return json_response(report)

    return Route("/health", health)


def bad_request(_: Request, error: Exception) -> Response:
    """Return the 422 response to an invalid body, in FastAPI's format."""
    assert isinstance(error, BadRequestError)
    return json_response({"detail": error.data.errors}, status_code=422)


def bad_option(_: Request, error: Exception) -> Response:
    """Return the 422 response to a request with an option that is unavailable or invalid, in FastAPI's format."""
    return json_response({"detail": [value_error([field_of(error)], str(error))]}, status_code=422)


def body_too_large(_: Request, __: Exception) -> Response:
    """Return the 413 response to a body that exceeds the size limit."""
    return json_response({"detail": f"The body of a request may have {MAX_FRAME_BYTES:,} bytes at most."}, status_code=413)


def at_capacity(_: Request, error: Exception) -> Response:
    """Return the 503 response to a request for which no session is available."""
    assert isinstance(error, SessionLimitError)
    detail = {
        "message": str(error),
        "code": "CAPACITY_REACHED",
        "active_sessions": error.active,
        "max_sessions": error.limit,
    }
    return json_response({"detail": detail}, status_code=503)


def client_gone(_: Request, __: Exception) -> Response:
    """Return the response to a request whose client has disconnected: nginx's status 499."""
    return Response(status_code=499)


def json_response(content: Any, status_code: int = 200) -> Response:
    """Return a response with JSON."""
    return Response(encode_json(content), status_code=status_code, media_type="application/json")
