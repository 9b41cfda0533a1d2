"""A server of ``coding-gym serve --e2b``, for E2B's SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import environment
from tests.support.requirements import import_extra
from tests.support.timing import eventually

KEY = f"e2b_{'5' * 40}"


class ServedE2B:
    """Process of ``coding-gym serve --e2b``.

    Args:
        directory: Directory for its output.
        arguments: Its arguments.
        token: Its token, None for no token.
    """

    def __init__(self, directory: Path, *arguments: str, token: str | None = KEY) -> None:
        self.log = directory / "serve.log"
        command = [sys.executable, "-m", "coding_gym", "serve", "--e2b", "--port", "0", "--option", "preload=[]", *arguments]
        variables = environment(**({} if token is None else {"CODING_GYM_TOKEN": token}))
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
        eventually(lambda: self.process.poll() is not None or "In Python:" in self.log.read_text(), 60)
        printed = self.log.read_text()
        assert "In Python:" in printed, printed
        self.lines = printed.splitlines()
        self.url = self.lines[0].split()[4]

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[ServedE2B]:
    served = ServedE2B(tmp_path_factory.mktemp("e2b"), "--provider", "local", "--option", "disk=64m")
    yield served
    assert served.stop() == 0, served.log.read_text()


@pytest.fixture
def options(served) -> dict[str, str]:
    """Options of the SDK that lead to the server."""
    return {"api_url": served.url, "sandbox_url": served.url, "api_key": KEY}


@pytest.fixture
def sandbox(options):
    sandbox = import_extra("e2b").Sandbox.create(**options)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def control(served) -> Iterator[httpx.Client]:
    """Client of the control plane."""
    # The gateway closes idle connections, possibly while the next request is on its way.
    limits = httpx.Limits(max_keepalive_connections=0)
    # On a busy machine, a sandbox takes longer to start than httpx waits by itself.
    with httpx.Client(base_url=served.url, headers={"X-API-Key": KEY}, limits=limits, timeout=60) as client:
        yield client
