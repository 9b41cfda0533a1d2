"""The table in ``docs/backends.md`` matches the behavior of each backend.

``CODING_GYM_UPDATE_DOCS=1 pytest tests/backends/test_matrix.py`` regenerates it, latencies included.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coding_gym.client.session import Session
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import ObservationData, ResetOptions, StepAction, StepRequest
from tests.backends.conformance import BEHAVIORS, SECTIONS, Behavior
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"

LANGUAGES = {
    "python": "python",
    "notebook": "python",
    "restricted": "python",
    "smolagents": "python",
    "jupyter:deno": "javascript",
    "bash": "bash",
}
YES, NO, NONE = "yes", "no", ""
_PATIENCE = 60.0
"""Time limit of cells that none ends, which may start a kernel on a busy machine."""


@pytest.fixture(scope="module")
def backend_sandbox(docker_engine):
    preload = SandboxConfig().preload
    with lasting_sandbox(provider="docker", preload=preload, sessions=8, packages=("numpy", "pandas", "smolagents")) as sandbox:
        yield sandbox


class Trial:
    """A session of a backend in which behaviors are tried, each after a reset."""

    def __init__(self, sandbox: Sandbox, backend: str) -> None:
        self.backend = backend
        self._session: Session = sandbox.connect()
        self.reset()

    def reset(self) -> None:
        options = ResetOptions(backend=self.backend, results=True, max_output_chars=2000)
        self._session.ask_reset(options)
        self._session.wait(timeout=30)

    def run(self, code: str, timeout: float = _PATIENCE) -> ObservationData:
        self._session._ask(StepRequest(StepAction(code=code, timeout_s=timeout)))
        return self._session.wait(timeout=timeout + 20)

    def does(self, behavior: Behavior) -> str:
        cells = getattr(behavior, LANGUAGES[self.backend])
        if not cells:
            return NONE
        self.reset()
        if len(cells) > 1:
            # The first cell starts the kernel.
            self.run(cells[0])
            cells = cells[1:]
        *others, last = cells
        for cell in others:
            self.run(cell, behavior.timeout)
        # What a limit has stopped is before the last cell, unless that is what the limit ends.
        data = self.run(last, behavior.timeout if behavior.outcome == "timeout" else _PATIENCE)
        return YES if _is_as_expected(data, behavior) else NO

    def close(self) -> None:
        self._session.close()


def _is_as_expected(data: ObservationData, behavior: Behavior) -> bool:
    observation, metadata = data.observation, data.observation.metadata
    if behavior.mime is not None:
        return any(behavior.mime in result.texts for result in metadata.results)
    if behavior.what.startswith("floods"):
        return "characters cut" in observation.stdout and observation.stdout.endswith("end\n")
    return (
        behavior.stdout in (None, observation.stdout)
        and behavior.stderr in observation.stderr
        and observation.exit_code == behavior.exit_code
        and metadata.outcome == behavior.outcome
    )


def test_backends_page_matches_measured_behavior(backend_sandbox):
    is_update = bool(os.environ.get("CODING_GYM_UPDATE_DOCS"))
    columns: dict[str, dict[str, str]] = {}
    for backend in LANGUAGES:
        trial = Trial(backend_sandbox, backend)
        columns[backend] = {behavior.what: trial.does(behavior) for behavior in BEHAVIORS}
        trial.close()
    lines = [f"| | {' | '.join(f'`{backend}`' for backend in LANGUAGES)} |", f"|---|{'---|' * len(LANGUAGES)}"]
    for section, behaviors in SECTIONS.items():
        lines.append(f"| **{section.capitalize()}** |{' |' * len(LANGUAGES)}")
        lines += [f"| {each.what} | {' | '.join(columns[backend][each.what] for backend in LANGUAGES)} |" for each in behaviors]
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    written, _, after = rest.partition(END)
    if is_update:
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)
        return
    assert written.splitlines() == lines
    assert all(columns["python"][each.what] == YES for each in BEHAVIORS if each not in SECTIONS["cells"])
