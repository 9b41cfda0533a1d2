"""One server for all backends, and sessions of them over its wire."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.running_server import RunningServer


class BackendSession:
    """A session of one backend; ``run`` returns what a step showed."""

    def __init__(self, socket: ClientConnection, backend: str) -> None:
        self._backend = backend
        self._socket = socket
        self.reset()

    def reset(self) -> None:
        self._ask("reset", {"backend": self._backend})

    def run(self, code: str, timeout: float = 10.0) -> SimpleNamespace:
        return self._ask("step", {"code": code, "timeout_s": timeout})

    def run_all(self, cells: list[str]) -> SimpleNamespace:
        """Run cells to the first that fails; returns all that they printed, and the last exit code."""
        stdout = ""
        for cell in cells:
            shown = self.run(cell)
            stdout += shown.stdout
            if shown.exit_code:
                break
        return SimpleNamespace(stdout=stdout, stderr=shown.stderr, exit_code=shown.exit_code)

    def _ask(self, kind: str, data: dict[str, object]) -> SimpleNamespace:
        self._socket.send(json.dumps({"type": kind, "data": data}))
        answer = json.loads(self._socket.recv(timeout=40))
        assert answer["type"] == "observation", answer
        return SimpleNamespace(**answer["data"]["observation"])


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
    """Run a rich cell in the default context, which is a restricted one; returns its messages."""

    def post(code: str) -> list[dict[str, object]]:
        answer = httpx.post(f"{server.url}/execute", json={"code": code}, timeout=40)
        return [json.loads(line) for line in answer.text.splitlines()]

    return post
