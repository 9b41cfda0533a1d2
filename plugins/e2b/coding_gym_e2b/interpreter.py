"""The code interpreter of an E2B sandbox, which is its session's: the API of port 49999."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coding_gym_e2b.control_messages import read_json
from coding_gym_e2b.envd import EnvdRequests
from coding_gym_e2b.failures import ApiError, RpcError
from coding_gym_e2b.sandbox import E2BSandbox

__all__ = ["interpreter_routes"]

_LANGUAGES = (None, "", "python", "python3", "py")
_HOME = "/home/user"


class Execution(msgspec.Struct):
    """Code to execute."""

    code: str = ""
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None
    timeout: float | None = None


def interpreter_routes(requests: EnvdRequests) -> list[Route]:
    """Return the routes of the code interpreter.

    Args:
        requests: Finds the sandboxes of requests.
    """

    async def execute(request: Request) -> Response:
        body = await read_json(request, Execution)
        sandbox = await requests.sandbox(request)
        if body.language not in _LANGUAGES:
            message = f"The interpreter of a sandbox executes Python, not {body.language!r:.50}: run a command instead"
            return PlainTextResponse(message, 400)
        if body.context_id not in (None, sandbox.id):
            return PlainTextResponse(f"Context {body.context_id!r:.100} not found", 404)
        environment = {**sandbox.lifecycle.environment, **(body.env_vars or {})}
        document: dict[str, Any] = {"code": body.code, "env_vars": environment}
        if body.timeout is not None:
            document["timeout"] = body.timeout
        return StreamingResponse(_lines(sandbox, msgspec.json.encode(document)), media_type="application/x-ndjson")

    async def list_contexts(request: Request) -> Response:
        sandbox = await requests.sandbox(request)
        return JSONResponse([{"id": sandbox.id, "language": "python", "cwd": _HOME}])

    async def refuse(_: Request) -> Response:
        raise ApiError(501, "A sandbox has one interpreter: fork the sandbox, or create another one")

    return [
        Route("/execute", execute, methods=["POST"]),
        Route("/contexts", list_contexts, methods=["GET"]),
        Route("/contexts", refuse, methods=["POST"]),
        Route("/contexts/{id}/restart", refuse, methods=["POST"]),
        Route("/contexts/{id}", refuse, methods=["DELETE"]),
    ]


async def _lines(sandbox: E2BSandbox, body: bytes) -> AsyncIterator[bytes]:
    async with sandbox.turn:
        try:
            async with sandbox.server.stream("POST", "/execute", body) as response:
                async for chunk in response.chunks():
                    yield chunk
        except RpcError as error:
            lost = {"type": "error", "name": "SandboxLost", "value": str(error), "traceback": ""}
            yield msgspec.json.encode(lost) + b"\n" + msgspec.json.encode({"type": "end_of_execution"}) + b"\n"
