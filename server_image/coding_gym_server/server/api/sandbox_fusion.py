"""SandboxFusion's HTTP API: ``/run_code``, ``/run_jupyter`` and ``/v1/ping``, so that its clients work unchanged.

Overload and failures of the sandbox are answered with 504, the only status that verl retries. They say nothing about a program,
which a response with 200 would.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coding_gym_server.server.api.request_body import read_body, run_while_connected
from coding_gym_server.server.api.validation import BodyValidator
from coding_gym_server.server.grading.grading_slots import OverloadedError
from coding_gym_server.server.grading.program_delivery import NotStartedError
from coding_gym_server.server.sandbox_fusion.code_runs import CodeRuns
from coding_gym_server.server.sandbox_fusion.messages import LANGUAGES, NotebookRequest, RunRequest
from coding_gym_server.server.sandbox_fusion.notebook_runs import NotebookRuns
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS
from coding_gym_server.workspace.file_errors import StorageError

__all__ = ["sandbox_fusion_routes"]

_TRANSIENT_ERRORS = (OverloadedError, NotStartedError, *INFRASTRUCTURE_ERRORS, OSError, EOFError)
_json = msgspec.json.Encoder()


def sandbox_fusion_routes(code_runs: CodeRuns, notebook_runs: NotebookRuns) -> list[Route]:
    """Return the routes of SandboxFusion's API.

    Args:
        code_runs: Runs programs.
        notebook_runs: Runs notebooks.
    """

    async def run_code(request: Request) -> Response:
        body = BodyValidator(await read_body(request))
        fields = {
            "code": body.string("code") or "",
            "language": body.choice("language", LANGUAGES),
            "stdin": body.string("stdin", optional=True),
            "compile_timeout": body.number("compile_timeout", 10),
            "run_timeout": body.number("run_timeout", 10),
            **_common(body),
        }
        body.check()
        return await _respond(request, code_runs.run(RunRequest(**fields)))

    async def run_jupyter(request: Request) -> Response:
        body = BodyValidator(await read_body(request))
        fields = {
            "cells": body.strings("cells", optional=False),
            "cell_timeout": body.number("cell_timeout", 0),
            "total_timeout": body.number("total_timeout", 45),
            "kernel": body.choice("kernel", ("python3",), default="python3"),
            **_common(body),
        }
        body.check()
        return await _respond(request, notebook_runs.run(NotebookRequest(**fields)))

    async def ping(_: Request) -> Response:
        return JSONResponse("pong")

    return [
        Route("/run_code", run_code, methods=["POST"]),
        Route("/run_jupyter", run_jupyter, methods=["POST"]),
        Route("/v1/ping", ping),
    ]


def _common(body: BodyValidator) -> dict[str, Any]:
    return {
        "memory_limit_MB": int(body.number("memory_limit_MB", -1, is_integer=True)),
        "files": body.texts("files"),
        "fetch_files": body.strings("fetch_files"),
    }


async def _respond(request: Request, work: Any) -> Response:
    try:
        response = await run_while_connected(request, work)
    except StorageError as error:
        return JSONResponse({"detail": f"The sandbox cannot write or read a file: {error}"}, 504)
    except _TRANSIENT_ERRORS as error:
        return JSONResponse({"detail": str(error) or type(error).__name__}, 504)
    return Response(_json.encode(response), media_type="application/json")
