"""OpenEnv's own server with an environment like its ``coding_env``: ``python tests/peers/openenv_server.py PORT``.

The package ``openenv`` contains the server, but not the environment. This is the minimum for a fair comparison: smolagents'
``LocalPythonExecutor``, an interpreter of syntax trees, in the process of the server.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any
from uuid import uuid4

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from smolagents.local_python_executor import LocalPythonExecutor

__all__ = ["CodeAction", "CodeObservation", "CodingEnvironment", "main"]


class CodeAction(Action):
    """Source text to run."""

    code: str


class CodeObservation(Observation):
    """Output of the code."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodingEnvironment(Environment[CodeAction, CodeObservation, State]):
    """One interpreter per episode."""

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CodeObservation:
        """Begin an episode; as in ``coding_env``, the seed has no effect."""
        self._begin()
        return CodeObservation(reward=0.0)

    def step(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Run code, and show the value of its last statement as JSON."""
        self._state.step_count += 1
        metadata = {"last_code": action.code}
        try:
            result = self._executor(action.code)
            shown = "" if result.output is None else "\n" + json.dumps(result.output, default=repr)
        except Exception:  # noqa: BLE001 - any exception of the code is an observation.
            return CodeObservation(stderr=traceback.format_exc(), exit_code=1, reward=0.0, metadata=metadata)
        return CodeObservation(stdout=result.logs + shown, reward=0.0, metadata=metadata)

    @property
    def state(self) -> State:
        """State of the episode."""
        return self._state

    def _begin(self) -> None:
        self._state = State(episode_id=str(uuid4()))
        self._executor = LocalPythonExecutor(additional_authorized_imports=[])
        self._executor.send_tools({"format_exc": traceback.format_exc, "safe_json_dumps": json.dumps})


def main() -> None:
    """Serve on a port of 127.0.0.1."""
    app = create_app(CodingEnvironment, CodeAction, CodeObservation, env_name="coding_env")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
