from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.timing import eventually

TOKEN = "to'k$en"


class Served:
    """Process of ``coding-gym serve``.

    Args:
        directory: Directory for its output.
        arguments: Its arguments.
        token: Its token, None for no token.
    """

    def __init__(self, directory: Path, *arguments: str, token: str | None = None) -> None:
        self.log = directory / "serve.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coding_gym", "serve", "--provider", "local", "--option", "preload=[]", *arguments],
                stdout=output,
                stderr=output,
                env=environment(**({} if token is None else {"CODING_GYM_TOKEN": token})),
            )
        self.lines = self._wait_for("As an environment:\n")
        self.url = self.lines[0].split()[1]

    def example(self, title: str) -> str:
        """Return the line below a title."""
        return self.lines[self.lines.index(title) + 1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)

    def _wait_for(self, text: str) -> list[str]:
        eventually(lambda: self.process.poll() is not None or text in self.log.read_text(), 60)
        printed = self.log.read_text()
        assert text in printed, printed
        return printed.splitlines()


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a command: that of the tests, without a token, and with this interpreter's programs first."""
    inherited = {name: value for name, value in os.environ.items() if name != "CODING_GYM_TOKEN"}
    return {**inherited, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a token, for tests without lasting effects."""
    served = Served(tmp_path_factory.mktemp("serve"), "--port", "0", token=TOKEN)
    yield served
    assert served.stop() == 0


@pytest.fixture
def command(served: Served) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of ours to its end, with the shared server."""

    def run(name: str, *arguments: object, stdin: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_line(served, name, *map(str, arguments)),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(CODING_GYM_TOKEN=TOKEN),
        )

    return run


def command_line(served: Served, name: str, *arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "coding_gym", name, "--url", served.url, *arguments]
