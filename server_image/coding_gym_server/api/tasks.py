"""OpenEnv's routes for environments that have tasks, which this one has not: the answers that say so."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["ENVIRONMENT_NAME", "task_routes"]

ENVIRONMENT_NAME = "coding_gym"

_METHODS = {
    "tasks": "list_tasks",
    "num_tasks": "num_tasks",
    "task": "get_task",
    "task_range": "get_task_range",
}


def task_routes() -> list[Route]:
    """Return the routes; they come after all others, for theirs begin with any name."""
    return [
        Route("/list_environments", _list_environments),
        _route("splits", "list_splits", "GET"),
        *(_route(path, method, "POST") for path, method in _METHODS.items()),
    ]


async def _list_environments(_: Request) -> Response:
    return JSONResponse([ENVIRONMENT_NAME])


def _route(path: str, method: str, verb: str) -> Route:
    async def refuse(request: Request) -> Response:
        name = request.path_params["environment"]
        if name.lower() != ENVIRONMENT_NAME:
            return JSONResponse({"detail": f"unknown environment {name!r}"}, 404)
        return JSONResponse({"detail": f"{method} is not supported for this environment"}, 501)

    return Route(f"/{{environment}}/{path}", refuse, methods=[verb])
