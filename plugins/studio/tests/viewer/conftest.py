from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from coding_gym.plugins import listen
from coding_gym_studio.guard import Guard
from coding_gym_studio.viewer.app import dataset_routes, view_app
from coding_gym_studio.viewer.index import EpisodeIndex
from plugins.studio.tests.viewer.datasets import varied, write
from tests.support.timing import eventually

TOKEN = "t0k3n"


@pytest.fixture(scope="session")
def varied_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dataset of 60 episodes of several kinds. Not to be changed."""
    return write(tmp_path_factory.mktemp("view") / "varied", [varied(index) for index in range(60)])


class Client:
    """Client of an application in this process."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._get(path))

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://localhost") as client:
            return await client.get(path)


@pytest.fixture
def api() -> Callable[[Path], Client]:
    """Return a client of the application that shows a dataset, whose episodes have been read."""

    def make(path: Path) -> Client:
        index = EpisodeIndex(path)
        index.read()
        return Client(view_app(dataset_routes(index)))

    return make


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Return the address of a server, in a thread of this process, that shows a dataset, without its fragment."""
    with contextlib.ExitStack() as stack:

        def start(path: Path) -> str:
            return stack.enter_context(serving(path))

        yield start


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    """Serve a dataset in a thread of this process."""
    index = EpisodeIndex(path)
    index.start()
    with listen("127.0.0.1", 0) as listener:
        app = Guard(view_app(dataset_routes(index)), token=TOKEN)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(30)


def fragment(route: str = "/") -> str:
    """Return the fragment with which a page is opened."""
    return f"#token={TOKEN}&route={route}"
