"""E2B's control plane: sandboxes and snapshots."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coding_gym.sandbox.config import parse_size
from coding_gym_e2b.control_messages import (
    ForkRequest,
    NewSandbox,
    PauseRequest,
    SnapshotRequest,
    TimeoutRequest,
    read_json,
)
from coding_gym_e2b.event_log import as_line, timestamp
from coding_gym_e2b.failures import ApiError, RpcError
from coding_gym_e2b.registry import DEFAULT_TIMEOUT, SandboxRegistry, Snapshot
from coding_gym_e2b.sandbox import E2BSandbox, Lifecycle
from coding_gym_e2b.templates import Templates
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.protocol.processes import Usage

__all__ = ["IMAGE", "OWN_CONTAINER", "ROOT", "control_routes"]

OWN_CONTAINER = "coding-gym/own-container"
"""Key of the metadata that gives a sandbox its own container, with the value ``true``."""

ROOT = "coding-gym/root"
"""Key of the metadata that keeps the programs of a sandbox from being root, with the value ``false``."""

IMAGE = "coding-gym/image"
"""Key of the metadata that names a template or an image, instead of the template."""

_PAGE = 100
_T = TypeVar("_T")


def control_routes(registry: SandboxRegistry, templates: Templates, *, root: bool = False) -> list[Route]:
    """Return the routes of the control plane for sandboxes and snapshots.

    Args:
        registry: The sandboxes.
        templates: What sandboxes are made of.
        root: Whether programs of sandboxes can be root.
    """

    async def create(request: Request) -> Response:
        body = await read_json(request, NewSandbox)
        if body.auto_pause and not body.auto_pause_memory:
            raise ApiError(400, "A sandbox cannot be paused without its memory: leave out keep_memory=False")
        if body.volume_mounts:
            raise ApiError(400, "There are no volumes to mount: write the files into the sandbox")
        name = body.metadata.get(IMAGE, body.template_id)
        lifecycle = Lifecycle(
            template_id=name,
            metadata=body.metadata,
            environment=body.env_vars,
            pauses=body.auto_pause,
            resumes=body.auto_resume is not None and body.auto_resume.enabled,
        )
        timeout = DEFAULT_TIMEOUT if body.timeout is None else body.timeout
        is_own = body.metadata.get(OWN_CONTAINER) == "true"
        is_root = root and body.metadata.get(ROOT) != "false"
        sandbox = await templates.create(name, lifecycle, timeout=timeout, is_own=is_own, is_root=is_root)
        return JSONResponse(sandbox.credentials, 201)

    async def list_all(request: Request) -> Response:
        query = request.query_params
        states = {state for text in query.getlist("state") for state in text.split(",") if state}
        wanted = {unquote(name): unquote(value) for name, value in parse_qsl(query.get("metadata", ""))}
        found = [
            sandbox
            for sandbox in registry.sandboxes
            if wanted.items() <= dict(sandbox.lifecycle.metadata).items()
            and (not states or sandbox.info["state"] in states)
            and query.get("template") in (None, sandbox.lifecycle.template_id)
            and _is_after(sandbox, query.get("startedAfter"))
        ]
        return _page(request, found if query.get("order") == "asc" else found[::-1], lambda sandbox: sandbox.info)

    async def list_running(_: Request) -> Response:
        return JSONResponse([sandbox.info for sandbox in registry.sandboxes if not sandbox.is_paused])

    async def get(request: Request) -> Response:
        sandbox = _sandbox(request)
        return JSONResponse({**sandbox.info, "envdAccessToken": sandbox.token, "domain": None})

    async def kill(request: Request) -> Response:
        registry.kill(_sandbox(request))
        return Response(status_code=204)

    async def set_timeout(request: Request) -> Response:
        body = await read_json(request, TimeoutRequest)
        registry.set_timeout(_sandbox(request), DEFAULT_TIMEOUT if body.timeout is None else body.timeout)
        return Response(status_code=204)

    async def pause(request: Request) -> Response:
        if (await read_json(request, PauseRequest)).memory is False:
            raise ApiError(400, "A sandbox cannot be paused without its memory: leave out keep_memory=False")
        await registry.pause(_sandbox(request))
        return Response(status_code=204)

    async def connect(request: Request) -> Response:
        body = await read_json(request, TimeoutRequest)
        sandbox = _sandbox(request)
        was_paused = await registry.resume(sandbox, timeout=DEFAULT_TIMEOUT if body.timeout is None else body.timeout)
        return JSONResponse(sandbox.credentials, 201 if was_paused else 200)

    async def fork(request: Request) -> Response:
        body = await read_json(request, ForkRequest)
        timeout = DEFAULT_TIMEOUT if body.timeout is None else body.timeout
        forks = await registry.fork(_sandbox(request), body.count, timeout=timeout)
        return JSONResponse([_forked(fork) for fork in forks], 201)

    async def take_snapshot(request: Request) -> Response:
        body = await read_json(request, SnapshotRequest)
        snapshot = await registry.take_snapshot(_sandbox(request), body.name)
        return JSONResponse(_described(snapshot), 201)

    async def list_snapshots(request: Request) -> Response:
        query = request.query_params
        found = [
            snapshot
            for snapshot in reversed(registry.snapshots)
            if query.get("sandboxID") in (None, snapshot.sandbox_id)
            and (query.get("name") is None or query["name"] in (*snapshot.names, snapshot.id))
        ]
        return _page(request, found, _described)

    async def metrics(request: Request) -> Response:
        sandbox = _sandbox(request)
        moment = time.time()
        start, end = (_number(request, name) for name in ("start", "end"))
        if sandbox.is_paused or (start is not None and moment < start) or (end is not None and int(moment) > end):
            return JSONResponse([])
        return JSONResponse([await _measured(sandbox, moment)])

    async def logs(request: Request) -> Response:
        log, limit = _sandbox(request).log, _number(request, "limit")
        entries = log.entries(start=_number(request, "start"), limit=limit)
        return JSONResponse({"logs": [as_line(entry) for entry in entries], "logEntries": entries})

    async def log_entries(request: Request) -> Response:
        log, limit = _sandbox(request).log, _number(request, "limit")
        is_backward = request.query_params.get("direction") == "backward"
        return JSONResponse({"logs": log.entries(start=_number(request, "cursor"), limit=limit, newest_first=is_backward)})

    async def set_network(_: Request) -> Response:
        raise ApiError(400, "The network of a sandbox cannot be changed: start the server with --option network=NAME")

    def _sandbox(request: Request) -> E2BSandbox:
        return registry.get(request.path_params["id"])

    one = "/sandboxes/{id}"
    return [
        *_both("/sandboxes", create, "POST"),
        Route("/v2/sandboxes", list_all, methods=["GET"]),
        Route("/sandboxes", list_running, methods=["GET"]),
        Route(one, get, methods=["GET"]),
        Route(one, kill, methods=["DELETE"]),
        Route(f"{one}/timeout", set_timeout, methods=["POST"]),
        Route(f"{one}/pause", pause, methods=["POST"]),
        *_both(f"{one}/connect", connect, "POST"),
        Route(f"{one}/resume", connect, methods=["POST"]),
        Route(f"{one}/fork", fork, methods=["POST"]),
        Route(f"{one}/snapshots", take_snapshot, methods=["POST"]),
        Route(f"{one}/metrics", metrics, methods=["GET"]),
        Route(f"{one}/logs", logs, methods=["GET"]),
        Route(f"/v2{one}/logs", log_entries, methods=["GET"]),
        Route(f"{one}/network", set_network, methods=["PUT"]),
        Route("/snapshots", list_snapshots, methods=["GET"]),
    ]


def _both(path: str, handler: Callable[[Request], Awaitable[Response]], method: str) -> list[Route]:
    """Return the routes of a handler that has two versions."""
    return [Route(path, handler, methods=[method]), Route(f"/v2{path}", handler, methods=[method])]


def _page(request: Request, found: Sequence[_T], describe: Callable[[_T], dict[str, Any]]) -> Response:
    limit = _number(request, "limit") or _PAGE
    start = _number(request, "nextToken") or 0
    rest = found[start + limit :]
    headers = {"x-next-token": str(start + limit)} if rest else {}
    return JSONResponse([describe(entry) for entry in found[start : start + limit]], headers=headers)


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        message = f"Expected {name}= to be a number, got {text[:50]!r}"
        raise ApiError(400, message)
    return int(text)


def _is_after(sandbox: E2BSandbox, text: str | None) -> bool:
    if text is None:
        return True
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"Expected startedAfter= to be a time in ISO 8601, got {text[:50]!r}"
        raise ApiError(400, message) from None
    return sandbox.started_at >= (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _forked(fork: E2BSandbox | ApiError) -> dict[str, Any]:
    if isinstance(fork, ApiError):
        return {"error": {"code": fork.status, "message": str(fork)}}
    return {"sandbox": fork.credentials}


def _described(snapshot: Snapshot) -> dict[str, Any]:
    return {"snapshotID": snapshot.id, "names": list(snapshot.names)}


async def _measured(sandbox: E2BSandbox, moment: float) -> dict[str, Any]:
    config = sandbox.host.config
    try:
        usage = msgspec.json.decode(await sandbox.server.request("GET", "/usage"), type=Usage)
    except (RpcError, *DECODING_ERRORS) as error:
        raise ApiError(503, str(error)) from error
    seconds = max((datetime.now(UTC) - sandbox.started_at).total_seconds(), 1e-3)
    return {
        "timestamp": timestamp(datetime.fromtimestamp(moment, UTC)),
        "timestampUnix": int(moment),
        "cpuCount": max(1, round(config.cpu)),
        "cpuUsedPct": round(100 * usage.cpu_seconds / seconds, 1),
        "memUsed": usage.memory_bytes,
        "memTotal": parse_size(config.mem),
        "memCache": 0,
        "diskUsed": usage.disk_used_bytes,
        "diskTotal": usage.disk_bytes,
    }
