"""One server for all backends, and a session for each of them over its wire protocol."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.sync.client import connect

from tests.backends.backend_session import BackendSession
from tests.support.running_server import RunningServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("backends"), "--backend", "restricted", "--max-sessions", "8") as server:
        yield server


@pytest.fixture(scope="module")
def open_session(server: RunningServer) -> Iterator[Callable[[str], BackendSession]]:
    with contextlib.ExitStack() as stack:
        yield lambda backend: BackendSession(stack.enter_context(connect(server.ws_url, proxy=None)), backend)


@pytest.fixture(scope="module")
def plain(open_session: Callable[[str], BackendSession]) -> BackendSession:
    return open_session("python")


@pytest.fixture(scope="module")
def restricted(open_session: Callable[[str], BackendSession]) -> BackendSession:
    return open_session("restricted")


@pytest.fixture
def execute(server: RunningServer) -> Callable[[str], list[dict[str, object]]]:
    """Run a cell in the default context, which is restricted; return the messages of the response."""

    def post(code: str) -> list[dict[str, object]]:
        answer = httpx.post(f"{server.url}/execute", json={"code": code}, timeout=40)
        return [json.loads(line) for line in answer.text.splitlines()]

    return post
