"""The page of a saved search tree: its structure in columns, and the episodes that lead to its nodes."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym_search.saved_tree import Header, SavedNode, SavedTree, load_tree
from coding_gym_server.protocol.backends import canonical_backend
from coding_gym_server.web.assets import COMMON, asset_route, page_route

__all__ = ["tree_app"]

_STATIC = Path(__file__).parent / "static"
_LABEL_CHARS = 120
_STEPS = 20
"""Number of an episode's steps per answer, by default and at most."""

_SHELL_BACKENDS = ("bash", "jupyter:bash")
_LANGUAGES = {"jupyter:deno": "typescript", "jupyter:javascript": "javascript"}
_PYTHON_BACKENDS = (None, "python", "notebook", "restricted", "restrictedpython", "smolagents", "jupyter:python3")
_DATA_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_SMALLEST_COMPRESSED = 1024


def tree_app(path: Path) -> Starlette:
    """Return the application of a saved tree's page.

    ``/`` is the page, ``/api/tree`` the structure, ``/api/tree/nodes/ID`` a part of the episode up to a node, and
    ``/api/tree/nodes/ID/picture`` a node's screen.

    Args:
        path: File that ``BranchTree.save`` wrote.

    Raises:
        DatasetError: If the file is not a saved tree, or is damaged.
    """
    pages = _TreePages(load_tree(path), name=path.name)
    routes = [
        page_route("/", _STATIC / "trees" / "index.html"),
        asset_route("/static/common", COMMON),
        asset_route("/static/view", _STATIC),
        Route("/api/tree", pages.structure),
        Route("/api/tree/nodes/{id:int}", pages.episode),
        Route("/api/tree/nodes/{id:int}/picture", pages.picture),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refuse})


class _TreePages:
    """Endpoints that answer with parts of a tree."""

    def __init__(self, tree: SavedTree, *, name: str) -> None:
        self._tree = tree
        self._language = _language(tree.header)
        self._structure = msgspec.json.encode(_structure(tree, name, self._language))

    async def structure(self, request: Request) -> Response:
        return _json(request, self._structure)

    async def episode(self, request: Request) -> Response:
        node = self._node(request)
        path = self._tree.path(node)
        count = min(_number(request, "count", _STEPS), _STEPS)
        first = _number(request, "first", max(len(path) - count, 0))
        steps = [_step(each) for each in path[first : first + count]]
        answer = {"id": node.id, "depth": node.depth, "first": first, "language": self._language, "steps": steps}
        return _json(request, msgspec.json.encode(answer))

    async def picture(self, request: Request) -> Response:
        picture = self._node(request).picture
        if picture is None:
            raise HTTPException(404, "This node has no picture.")
        return Response(picture, media_type="image/png", headers=_DATA_HEADERS)

    def _node(self, request: Request) -> SavedNode:
        number: int = request.path_params["id"]
        if number >= len(self._tree):
            raise HTTPException(404, f"There is no node {number}: the tree has {len(self._tree)}.")
        return self._tree[number]


def _structure(tree: SavedTree, name: str, language: str) -> dict[str, Any]:
    """Return what drawing a tree requires, an array per field: 10,000 nodes are some 100 kB when compressed."""
    nodes = list(tree)
    return {
        "name": name,
        "environment": tree.header.environment,
        "language": language,
        "best": tree.best().id,
        "parent": [-1 if node.parent is None else node.parent for node in nodes],
        "visits": [node.visits for node in nodes],
        "mean": _rounded(node.mean for node in nodes),
        "score": _rounded(node.score for node in nodes),
        "reward": _rounded(node.total_reward for node in nodes),
        "outcome": [node.outcome for node in nodes],
        "solved": [node.solved for node in nodes],
        "end": ["terminated" if node.terminated else "truncated" if node.truncated else None for node in nodes],
        "label": [_label(node) for node in nodes],
    }


def _step(node: SavedNode) -> dict[str, Any]:
    fields = msgspec.structs.asdict(node)
    picture = fields.pop("picture")
    mean = None if math.isnan(node.mean) else node.mean
    return fields | {"action": _action_text(node), "has_picture": picture is not None, "mean": mean}


def _action_text(node: SavedNode) -> str | None:
    if node.action is None or isinstance(node.action, str):
        return node.action
    try:
        return json.dumps(node.action, ensure_ascii=False)
    except RecursionError:
        return "<nested too deeply to be shown>"


def _label(node: SavedNode) -> str:
    if node.parent is None:
        return "root"
    text = " ".join((_action_text(node) or "").split())
    return text if len(text) <= _LABEL_CHARS else f"{text[:_LABEL_CHARS]}…"


def _language(header: Header) -> str:
    """Return the language to highlight actions in, empty if that is unknown."""
    backend = header.backend and canonical_backend(header.backend)
    if backend in _SHELL_BACKENDS or (header.environment or "").startswith("CodingShellEnv"):
        return "bash"
    if backend in _PYTHON_BACKENDS:
        return "python"
    return _LANGUAGES.get(backend or "", "")


def _rounded(numbers: Iterable[float | None]) -> list[float | None]:
    return [None if number is None or math.isnan(number) else round(number, 4) for number in numbers]


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(2**31)):
        raise HTTPException(400, f"Expected {name}= to be a number of at least 0, got {text!r:.100}.")
    return int(text)


def _json(request: Request, content: bytes) -> Response:
    headers = _DATA_HEADERS | {"vary": "accept-encoding"}
    if len(content) >= _SMALLEST_COMPRESSED and "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, compresslevel=6)
        headers["content-encoding"] = "gzip"
    return Response(content, media_type="application/json", headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(msgspec.json.encode({"detail": error.detail}), error.status_code, _DATA_HEADERS, "application/json")
