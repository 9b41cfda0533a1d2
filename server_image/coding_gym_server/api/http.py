"""The HTTP routes of OpenEnv: health and descriptions, and steps that each run in a session of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from coding_gym_server import __version__
from coding_gym_server.api.bodies import read_body, until_gone
from coding_gym_server.api.codec import BadRequestError, decode_json, encode_json, field_of, value_error
from coding_gym_server.api.mcp import answer_mcp_text, mcp_endpoint
from coding_gym_server.api.openapi import HttpStep, json_schema, openapi_document
from coding_gym_server.api.tasks import ENVIRONMENT_NAME, task_routes
from coding_gym_server.isolation.probe import IsolationReport
from coding_gym_server.protocol import MAX_FRAME_BYTES, Observation, ResetOptions, SessionState, StepAction
from coding_gym_server.sessions import CapacityError, Session, Sessions

__all__ = ["routes"]

_T = TypeVar("_T")


class ClientGoneError(Exception):
    """The client dropped the connection before the answer was ready."""


def routes(sessions: Sessions, isolation: IsolationReport) -> list[BaseRoute]:
    """Return the routes.

    Args:
        sessions: Where a step gets its session.
        isolation: What keeps sessions apart, shown by ``/health``.
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
        return _json({"status": "healthy", "isolation": isolation})

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
        session: Session = sessions.open()
        try:
            return _json(await _unless_gone(request, run(session)))
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
    """Answer a body that does not fit, as FastAPI does."""
    assert isinstance(error, BadRequestError)
    return _json({"detail": error.data.errors}, status_code=422)


def bad_option(_: Request, error: Exception) -> Response:
    """Answer a reset that asks for what there cannot be, in the same shape."""
    return _json({"detail": [value_error([field_of(error)], str(error))]}, status_code=422)


def body_too_large(_: Request, __: Exception) -> Response:
    """Answer a body that was not read to its end."""
    return _json({"detail": f"The body of a request may have {MAX_FRAME_BYTES:,} bytes at most."}, status_code=413)


def at_capacity(_: Request, error: Exception) -> Response:
    """Answer a request for which there is no free session."""
    assert isinstance(error, CapacityError)
    detail = {
        "message": str(error),
        "code": "CAPACITY_REACHED",
        "active_sessions": error.active,
        "max_sessions": error.limit,
    }
    return _json({"detail": detail}, status_code=503)


def client_gone(_: Request, __: Exception) -> Response:
    """End a request that nobody waits for any more; the status is nginx's for that case."""
    return Response(status_code=499)


def _json(content: Any, status_code: int = 200) -> Response:
    return Response(encode_json(content), status_code=status_code, media_type="application/json")


async def _unless_gone(request: Request, work: Awaitable[_T]) -> _T:
    """Wait for ``work``, but cancel it if the client drops the connection meanwhile.

    Raises:
        ClientGoneError: It did.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.wait({working, gone})
