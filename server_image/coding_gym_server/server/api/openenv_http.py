"""HTTP routes of OpenEnv: metadata, and steps that each run in a new session."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from coding_gym_server import __version__
from coding_gym_server.protocol import Observation, ResetOptions, SessionState, StepAction
from coding_gym_server.server.api.codec import decode_json
from coding_gym_server.server.api.health import json_response
from coding_gym_server.server.api.openapi import HttpStep, json_schema, openapi_document
from coding_gym_server.server.api.openenv_mcp import answer_mcp_text, mcp_endpoint
from coding_gym_server.server.api.openenv_tasks import ENVIRONMENT_NAME, task_routes
from coding_gym_server.server.api.request_body import read_body, run_while_connected
from coding_gym_server.server.sessions.registry import SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession

__all__ = ["openenv_routes"]


def openenv_routes(sessions: SessionRegistry) -> list[BaseRoute]:
    """Return the routes of OpenEnv's HTTP API except ``/health``.

    Args:
        sessions: The registry that opens a session for each step or reset.
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

    async def describe(_: Request) -> Response:
        return json_response(metadata)

    async def schema(_: Request) -> Response:
        return json_response(schemas)

    async def openapi_json(_: Request) -> Response:
        return json_response(openapi)

    async def state(_: Request) -> Response:
        return json_response(SessionState())

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
            return json_response(await run_while_connected(request, run(session)))
        finally:
            sessions.close(session)

    return [
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
