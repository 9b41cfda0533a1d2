"""Sessions of a local server, by backend."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websockets.sync.client

from tests.support.interpreter_client import InterpreterClient
from tests.support.running_server import RunningServer


class BackendSession:
    """A session over ``/ws``, whose cells run in one backend."""

    def __init__(self, connection: websockets.sync.client.ClientConnection, backend: str) -> None:
        self._connection = connection
        self.backend = backend
        self.reset()

    def reset(self, **options: Any) -> dict[str, Any]:
        return self._ask("reset", {"backend": self.backend, **options})["observation"]

    def run(self, code: str, timeout: float = 20.0) -> dict[str, Any]:
        self.begin(code, timeout)
        return self.wait()

    def begin(self, code: str, timeout: float = 20.0) -> None:
        self._send("step", {"code": code, "timeout_s": timeout})

    def interrupt(self) -> None:
        self._connection.send(json.dumps({"type": "interrupt"}))

    def wait(self) -> dict[str, Any]:
        observation = self._receive()["observation"]
        return observation | observation.pop("metadata")

    def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        self._send(kind, data)
        return self._receive()

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        self._connection.send(json.dumps({"type": kind, "data": data}))

    def _receive(self) -> dict[str, Any]:
        message = json.loads(self._connection.recv(timeout=60))
        if message["type"] == "error":
            raise ValueError(message["data"]["message"])
        return message["data"]


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    # A short directory name, because the length of Unix socket paths is limited.
    with RunningServer(tmp_path_factory.mktemp("k"), "--max-sessions", "32", "--spare-workers", "0", "--network") as server:
        yield server


@contextlib.contextmanager
def _opening_sessions(server: RunningServer) -> Iterator[Callable[[str], BackendSession]]:
    with contextlib.ExitStack() as stack:

        def open_session(backend: str) -> BackendSession:
            connection = websockets.sync.client.connect(server.ws_url, max_size=None, proxy=None)
            return BackendSession(stack.enter_context(connection), backend)

        yield open_session


@pytest.fixture
def open_session(server) -> Iterator[Callable[[str], BackendSession]]:
    with _opening_sessions(server) as open_session:
        yield open_session


@pytest.fixture(scope="session")
def shared_deno(server) -> Iterator[BackendSession]:
    """Session shared by the tests that leave no state behind."""
    with _opening_sessions(server) as open_session:
        yield open_session("jupyter:deno")


@pytest.fixture
def interpreter(server) -> Iterator[InterpreterClient]:
    with InterpreterClient(server.url) as client:
        yield client
