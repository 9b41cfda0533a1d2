"""The code interpreters of an E2B sandbox, those of its session: the API of port 49999."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from coding_gym_e2b.async_http import AsyncResponse
from coding_gym_e2b.connections import reset_connection
from coding_gym_e2b.control_messages import read_json
from coding_gym_e2b.envd import EnvdRequests
from coding_gym_e2b.failures import ApiError, RpcError
from coding_gym_e2b.sandbox import E2BSandbox

__all__ = ["interpreter_routes"]

_PYTHON = (None, "", "python", "python3", "py")


class Execution(msgspec.Struct):
    """Code to execute."""

    code: str = ""
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None
    timeout: float | None = None


class NewContext(msgspec.Struct):
    """A context to make."""

    language: str | None = None
    cwd: str | None = None


def interpreter_routes(requests: EnvdRequests) -> list[Route]:
    """Return the routes of the code interpreter.

    Args:
        requests: Finds the sandboxes of requests.
    """

    async def execute(request: Request) -> Response:
        body = await read_json(request, Execution)
        sandbox = await requests.sandbox(request)
        body.env_vars = {**sandbox.lifecycle.environment, **(body.env_vars or {})}
        stack = contextlib.AsyncExitStack()
        try:
            if not body.context_id and body.language in _PYTHON:
                # Its session can be copied meanwhile in other languages, which copies do not have.
                await stack.enter_async_context(sandbox.turn)
            answer = await stack.enter_async_context(sandbox.server.answer("POST", "/execute", msgspec.json.encode(body)))
        except BaseException as error:
            await stack.aclose()
            if isinstance(error, RpcError):
                raise ApiError(502, str(error)) from error
            raise
        return StreamingResponse(_lines(sandbox, answer, stack), answer.status, media_type="application/x-ndjson")

    async def forward(request: Request) -> Response:
        body = b""
        if request.method == "POST" and "id" not in request.path_params:
            body = msgspec.json.encode(await read_json(request, NewContext))
        # E2B's SDKs send no token to these.
        sandbox = await requests.named(request)
        return await _forwarded(sandbox, request, body)

    return [
        Route("/execute", execute, methods=["POST"]),
        Route("/contexts", forward, methods=["GET", "POST"]),
        Route("/contexts/{id}/restart", forward, methods=["POST"]),
        Route("/contexts/{id}", forward, methods=["DELETE"]),
    ]


async def _forwarded(sandbox: E2BSandbox, request: Request, body: bytes) -> Response:
    try:
        async with sandbox.server.answer(request.method, quote(request.scope["path"]), body) as answer:
            content = await answer.read()
            return Response(content, answer.status, media_type="application/json" if answer.is_success else "text/plain")
    except RpcError as error:
        raise ApiError(502, str(error)) from error


async def _lines(sandbox: E2BSandbox, answer: AsyncResponse, stack: contextlib.AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        try:
            async for chunk in answer.chunks():
                if sandbox.is_closed:
                    # By which E2B's SDKs know that it was killed.
                    reset_connection()
                    return
                yield chunk
        except Exception as error:  # noqa: BLE001 - the status has been sent, so that the stream must tell it
            lost = {"type": "error", "name": "SandboxLost", "value": str(error), "traceback": ""}
            yield msgspec.json.encode(lost) + b"\n" + msgspec.json.encode({"type": "end_of_execution"}) + b"\n"
