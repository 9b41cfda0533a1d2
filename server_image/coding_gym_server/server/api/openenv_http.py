"""HTTP routes of OpenEnv: health, metadata, and steps that each run in a new session."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from coding_gym_server import __version__
from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.protocol import MAX_FRAME_BYTES, PROTOCOL_VERSION, Observation, ResetOptions, SessionState, StepAction
from coding_gym_server.server.api.codec import BadRequestError, decode_json, encode_json, field_of, value_error
from coding_gym_server.server.api.openapi import HttpStep, json_schema, openapi_document
from coding_gym_server.server.api.openenv_mcp import answer_mcp_text, mcp_endpoint
from coding_gym_server.server.api.openenv_tasks import ENVIRONMENT_NAME, task_routes
from coding_gym_server.server.api.request_body import read_body, run_while_connected
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession

__all__ = ["routes"]


def routes(sessions: SessionRegistry, isolation: IsolationReport) -> list[BaseRoute]:
    """Return the routes of OpenEnv's HTTP API.

    Args:
        sessions: The registry that opens a session for each step or reset.
        isolation: The isolation mechanisms in effect, reported by ``/health``.
    """
    metadata = {
        "name": ENVIRONMENT_NAME,
        "description": "Runs Python code in isolated, persistent sessions and returns stdout, stderr and the exit code.",
        "readme_content": None,
        "version": __version__,
        "author": None,
        "documentation_url": None,
    }
    schemas = {
        "action": json_schema(StepAction),
        "observation": json_schema(Observation),
        "state": json_schema(SessionState),
        "reset_observation": json_schema(Observation),
    }
    openapi = openapi_document()

    async def health(_: Request) -> Response:
        report = {
            "status": "healthy",
            "protocol_version": PROTOCOL_VERSION,
            "isolation": isolation,
            "active_sessions": sessions.count,
            "max_sessions": sessions.limit,
        }
        return _json(report)

    async def describe(_: Request) -> Response:
        return _json(metadata)

    async def schema(_: Request) -> Response:
        return _json(schemas)

    async def openapi_json(_: Request) -> Response:
        return _json(openapi)

    async def state(_: Request) -> Response:
        return _json(SessionState())

    async def reset(request: Request) -> Response:
        options = decode_json(await read_body(request), ResetOptions)
        return await in_session(request, lambda session: session.reset(options))

    async def step(request: Request) -> Response:
        body = decode_json(await read_body(request), HttpStep)
        if body.timeout_s is not None:
            body.action.timeout_s = body.timeout_s
        return await in_session(request, lambda session: session.step(body.action))

    async def mcp(request: Request) -> Response:
        return Response(answer_mcp_text(await read_body(request)), media_type="application/json")

    async def in_session(request: Request, run: Any) -> Response:
        session: ServerSession = sessions.open()
        try:
            return _json(await run_while_connected(request, run(session)))
        finally:
            sessions.close(session)

    return [
        Route("/health", health),
        Route("/metadata", describe),
        Route("/schema", schema),
        Route("/openapi.json", openapi_json),
        Route("/state", state),
        Route("/reset", reset, methods=["POST"]),
        Route("/step", step, methods=["POST"]),
        Route("/mcp", mcp, methods=["POST"]),
        WebSocketRoute("/mcp", mcp_endpoint),
        *task_routes(),
    ]


def bad_request(_: Request, error: Exception) -> Response:
    """Return the 422 response to an invalid body, in FastAPI's format."""
    assert isinstance(error, BadRequestError)
    return _json({"detail": error.data.errors}, status_code=422)


def bad_option(_: Request, error: Exception) -> Response:
    """Return the 422 response to a request with an option that is unavailable or invalid, in FastAPI's format."""
    return _json({"detail": [value_error([field_of(error)], str(error))]}, status_code=422)


def body_too_large(_: Request, __: Exception) -> Response:
    """Return the 413 response to a body that exceeds the size limit."""
    return _json({"detail": f"The body of a request may have {MAX_FRAME_BYTES:,} bytes at most."}, status_code=413)


def at_capacity(_: Request, error: Exception) -> Response:
    """Return the 503 response to a request for which no session is available."""
    assert isinstance(error, SessionLimitError)
    detail = {
        "message": str(error),
        "code": "CAPACITY_REACHED",
        "active_sessions": error.active,
        "max_sessions": error.limit,
    }
    return _json({"detail": detail}, status_code=503)


def client_gone(_: Request, __: Exception) -> Response:
    """Return the response to a request whose client has disconnected: nginx's status 499."""
    return Response(status_code=499)


def _json(content: Any, status_code: int = 200) -> Response:
    return Response(encode_json(content), status_code=status_code, media_type="application/json")
