"""OpenEnv's task routes, which respond that this environment does not support tasks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["ENVIRONMENT_NAME", "task_routes"]

ENVIRONMENT_NAME = "coding_gym"

_METHODS = {
    "splits": "list_splits",
    "tasks": "list_tasks",
    "num_tasks": "num_tasks",
    "task": "get_task",
    "task_range": "get_task_range",
}


def task_routes() -> list[Route]:
    """Return the task routes of this environment only: any other environment name is a 404 in any case."""
    return [Route("/list_environments", _list_environments), *(_route(*item) for item in _METHODS.items())]


async def _list_environments(_: Request) -> Response:
    return JSONResponse([ENVIRONMENT_NAME])


def _route(path: str, method: str) -> Route:
    async def refuse(_: Request) -> Response:
        return JSONResponse({"detail": f"{method} is not supported for this environment"}, 501)

    return Route(f"/{ENVIRONMENT_NAME}/{path}", refuse, methods=["GET" if path == "splits" else "POST"])
