"""Application of ``coding-gym view``: the page, and the data of a dataset."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from coding_gym.errors import DatasetError
from coding_gym_server.web.assets import COMMON, asset_route, page_route
from coding_gym_studio.viewer.episodes import RecordedEpisode, RecordedStep
from coding_gym_studio.viewer.index import EpisodeIndex
from coding_gym_studio.viewer.summaries import ENDINGS, RESULTS

__all__ = ["dataset_routes", "view_app"]

_STATIC = Path(__file__).parent / "static"
_MOST_ROWS = 50_000
_FIRST_ROWS = 500
_MOST_CHARS = 65_536
_MOST_RESULTS = 100
_MOST_RESULT_CHARS = 32 << 20
_KEPT_EPISODES = 4
_MOST_DIGITS = 18
_SHELLS = ("CodingShell",)


def view_app(routes: Sequence[BaseRoute]) -> Starlette:
    """Return the application: the page, its files, and routes of data.

    Args:
        routes: Routes of the data that the page shows, such as ``dataset_routes``.
    """
    return Starlette(
        routes=[
            page_route("/", _STATIC / "index.html"),
            asset_route("/static/common", COMMON),
            asset_route("/static/view", _STATIC),
            *routes,
        ]
    )


def dataset_routes(index: EpisodeIndex) -> list[BaseRoute]:
    """Return the routes of a dataset, below ``/api``.

    Args:
        index: Index of the dataset.
    """
    data = _DatasetData(index)
    return [
        _route("/api/dataset", data.dataset),
        _route("/api/episodes", data.rows),
        _route("/api/seconds", data.seconds),
        _route("/api/episodes/{episode:int}", data.episode),
        _route("/api/episodes/{episode:int}/steps/{step:int}/text", data.text),
        _route("/api/episodes/{episode:int}/steps/{step:int}/picture", data.picture),
        _route("/api/episodes/{episode:int}/steps/{step:int}/results", data.results),
        _route("/api/episodes/{episode:int}/steps/{step:int}/verdict", data.verdict),
    ]


class _DatasetData:
    """Answers of the routes of a dataset."""

    def __init__(self, index: EpisodeIndex) -> None:
        self._index = index
        self._episode: Callable[[int, int], RecordedEpisode] = functools.lru_cache(_KEPT_EPISODES)(self._read)

    def _read(self, episode: int, generation: int) -> RecordedEpisode:
        return RecordedEpisode(self._index.record(episode))

    def dataset(self, request: Request) -> Response:
        """Return the state of the dataset, and begin to read what is new."""
        index = self._index
        if not index.is_reading:
            index.start()
        manifest = index.manifest
        arguments = manifest.arguments
        return _answer(
            {
                "kind": "dataset",
                "path": str(index.path.absolute()),
                "name": index.path.absolute().name,
                "env": arguments.env,
                "envOptions": arguments.env_options,
                "policy": arguments.policy,
                "seed": str(arguments.seed),
                "runs": manifest.runs,
                "requested": manifest.episodes,
                "isComplete": manifest.sha256 is not None,
                "faults": index.faults,
                "language": _language(arguments.env, arguments.env_options),
                **self._state(),
            }
        )

    def rows(self, request: Request) -> Response:
        """Return columns of summaries from a row on."""
        start = _number(request, "start")
        self._index.resume()
        summaries = self._index.summaries
        # The first answer is short, so that the page shows something at once.
        stop = min(len(summaries), start + (_FIRST_ROWS if start == 0 else _MOST_ROWS))
        return _answer(
            {
                **self._state(),
                "start": start,
                "columns": summaries.columns(start, stop),
                "outcomes": summaries.outcomes,
                "tasks": summaries.tasks,
                "endings": ENDINGS,
                "results": RESULTS,
            }
        )

    def _state(self) -> dict[str, Any]:
        index = self._index
        return {
            "generation": index.generation,
            "isReading": index.is_reading,
            "read": len(index.summaries),
            "hasTimes": index.has_times,
            "problem": index.problem,
        }

    def seconds(self, request: Request) -> Response:
        """Return the times of all episodes that have been read."""
        return _answer({"generation": self._index.generation, "seconds": self._index.seconds()})

    def episode(self, request: Request) -> Response:
        """Return an episode without its texts and pictures."""
        number = request.path_params["episode"]
        episode = self._get(number)
        details = self._index.details(number)
        steps = [step.overview(position) for position, step in enumerate(episode.steps)]
        if details is not None:
            for step, found in zip(steps, details.steps, strict=False):
                verdict = found.verdict if isinstance(found.verdict, dict) else None
                step.update(
                    seconds=found.seconds,
                    policySeconds=found.policy_seconds,
                    verdict=None if verdict is None else str(verdict.get("outcome", "")),
                )
        return _answer(
            {
                "episode": episode.index,
                "seed": str(episode.seed),
                "task": episode.options.get("task_id"),
                "started": details and details.started,
                "steps": steps,
            }
        )

    def text(self, request: Request) -> Response:
        """Return a part of a text of a step."""
        text = self._step(request).texts.get(_name(request))
        if text is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "This step has no such text.")
        start = _number(request, "start")
        count = min(_number(request, "count", _MOST_CHARS), _MOST_CHARS * 16)
        return _answer({"text": text[start : start + count], "start": start, "total": len(text)})

    def picture(self, request: Request) -> Response:
        """Return a picture of a step as PNG."""
        step = self._step(request)
        try:
            png = step.png(_name(request), is_thumbnail="thumbnail" in request.query_params)
        except KeyError:
            raise HTTPException(HTTPStatus.NOT_FOUND, "This step has no such picture.") from None
        except (ValueError, OverflowError, MemoryError) as error:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, f"This picture is damaged: {error}") from error
        # Not kept by the browser: another dataset may be shown at the same address later.
        return Response(png, media_type="image/png", headers={"cache-control": "no-store"})

    def results(self, request: Request) -> Response:
        """Return the first rich results of a step, as servers send them, and the number of the others."""
        results = self._step(request).results
        sizes = itertools.accumulate(sum(map(len, (*result.texts.values(), *result.documents.values()))) for result in results)
        count = sum(size <= _MOST_RESULT_CHARS for size in itertools.islice(sizes, _MOST_RESULTS))
        return _answer({"results": results[:count], "omitted": len(results) - count})

    def verdict(self, request: Request) -> Response:
        """Return the verdict on a step, with the result of each test."""
        details = self._index.details(request.path_params["episode"])
        step = request.path_params["step"]
        return _answer(details.steps[step].verdict if details is not None and step < len(details.steps) else None)

    def _step(self, request: Request) -> RecordedStep:
        steps = self._get(request.path_params["episode"]).steps
        number = int(request.path_params["step"])
        if number >= len(steps):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"This episode has {len(steps)} steps, there is no step {number}.")
        return steps[number]

    def _get(self, number: int) -> RecordedEpisode:
        try:
            return self._episode(number, self._index.generation)
        except DatasetError as error:
            status = HTTPStatus.NOT_FOUND if self._index.row(number) is None else HTTPStatus.UNPROCESSABLE_ENTITY
            raise HTTPException(status, str(error)) from error


def _route(path: str, handle: Callable[[Request], Response]) -> Route:
    def endpoint(request: Request) -> Response:
        # A plain function: Starlette runs it in a thread, in which it may read files.
        return handle(request)

    return Route(path, endpoint, methods=["GET"])


def _name(request: Request) -> str:
    # Not a part of the path: names have slashes, are empty, or "..".
    return request.query_params.get("name", "")


def _number(request: Request, name: str, default: int = 0) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"Expected {name} to be a number of at least 0, got {text!r:.100}.")
    return int(text)


def _answer(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"})


def _language(env: str, options: dict[str, Any]) -> str:
    """Return the language of the actions."""
    backend = str(options.get("backend") or "")
    if env.startswith(_SHELLS) or "bash" in backend:
        return "bash"
    return next((name for name in ("typescript", "javascript") if name in backend), "python")
