"""A session of one backend, over the wire protocol of a server."""

from __future__ import annotations

import json
from types import SimpleNamespace

from websockets.sync.client import ClientConnection

__all__ = ["BackendSession"]


class BackendSession:
    """A session of one backend; ``run`` returns the observation of a step."""

    def __init__(self, socket: ClientConnection, backend: str) -> None:
        self._backend = backend
        self._socket = socket
        self.reset()

    def reset(self) -> None:
        self._ask("reset", {"backend": self._backend})

    def run(self, code: str, timeout: float = 10.0) -> SimpleNamespace:
        return self._ask("step", {"code": code, "timeout_s": timeout})

    def run_all(self, cells: list[str]) -> SimpleNamespace:
        """Run cells up to the first failure; return their combined stdout, and the last exit code."""
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
