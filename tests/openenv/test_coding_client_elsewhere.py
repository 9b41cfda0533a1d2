"""``CodingClient`` with servers that this package did not start: OpenEnv's own, and a container that was started manually."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from benchmarks.peers.openenv_steps import OPENENV_SERVER
from coding_gym import CodeAction, CodingClient
from coding_gym.errors import CapacityError, ProtocolError
from tests.support.running_server import free_port, is_healthy
from tests.support.timing import eventually


@pytest.fixture(scope="module")
def openenv_server():
    """OpenEnv's server, with smolagents' executor."""
    pytest.importorskip("smolagents")
    port = free_port()
    process = subprocess.Popen([sys.executable, OPENENV_SERVER, str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: process.poll() is not None or is_healthy(url), 60)
        assert process.poll() is None
        yield url
    finally:
        process.terminate()
        process.wait()


def test_client_works_with_openenv_server(openenv_server):
    with CodingClient(base_url=openenv_server) as client:
        assert client.reset(seed=1).observation.exit_code == 0
        result = client.step(CodeAction(code="x = 41\nprint('hi')"))
        assert (result.observation.stdout, result.observation.stderr, result.observation.exit_code) == ("hi\n", "", 0)
        assert result.observation.metadata == {"last_code": "x = 41\nprint('hi')"}
        assert (result.reward, result.done) == (0.0, False)
        assert client.step(CodeAction(code="1 / 0")).observation.exit_code == 1
        assert client.state().step_count == 2
        with CodingClient(base_url=openenv_server) as second, pytest.raises(CapacityError):
            second.reset()
        with pytest.raises(ProtocolError, match="VALIDATION_ERROR"):
            client.step(CodeAction(code="1", capture_screenshot=True))
        assert client.step(CodeAction(code="print(x)")).observation.stdout == "41\n"


@pytest.mark.docker
def test_client_works_with_manually_run_container(plain):
    for _ in range(2):
        client = CodingClient(base_url=plain.url)
        client.reset()
        assert client.step(CodeAction(code="print('hi')")).observation.stdout == "hi\n"
        client.close()
    assert httpx.get(f"{plain.url}/health").status_code == 200
