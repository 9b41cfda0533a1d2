"""Clients and servers with different versions of the wire protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import gymnasium as gym
import httpx
import pytest
from websockets.sync.client import connect

import coding_gym
from coding_gym import AsyncCodingEnv, CodeAction, CodeInterpreter, CodingClient, SandboxPool
from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym.datasets import collect
from coding_gym.errors import ConfigurationError, ProtocolVersionError
from coding_gym.tasks import Grader, load_suite
from coding_gym_server.protocol import PROTOCOL_VERSION, PROTOCOL_VERSION_HEADER
from tests.support.running_server import RunningServer

LAUNCHER = Path(__file__).with_name("server_of_version.py")
NEWER = PROTOCOL_VERSION + 1


@pytest.fixture(scope="module", params=[0, NEWER], ids=["unversioned", "newer"])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def other(version, tmp_path_factory):
    """A server with another protocol version."""
    directory = tmp_path_factory.mktemp("other")
    with RunningServer(directory, "--max-sessions", "4", program=[str(LAUNCHER), str(version)]) as server:
        yield server


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("same"), "--max-sessions", "4") as server:
        yield server


def test_health_reports_the_version(same):
    assert httpx.get(f"{same.url}/health").json()["protocol_version"] == PROTOCOL_VERSION


def test_session_of_other_version_is_refused(other, version):
    with pytest.raises(ProtocolVersionError) as caught:
        Session(Address.of_url(other.url))
    assert isinstance(caught.value, ConfigurationError)
    assert (caught.value.client_version, caught.value.server_version) == (PROTOCOL_VERSION, version)
    assert str(caught.value) == (
        f"This client speaks wire protocol {PROTOCOL_VERSION}, the server at {other.url} speaks "
        f"{version or '0 (it reports none)'}: install the same coding-gym version on both sides or rebuild the image: "
        "coding-gym build-image"
    )


def test_environment_of_other_version_fails_at_once(other):
    options = {"provider": "remote", "base_url": other.url, "screen": None}
    with contextlib.closing(gym.make("CodingEnv-v0", **options)) as env, pytest.raises(ProtocolVersionError):
        env.reset(seed=0)


def test_vector_environment_of_other_version_fails_at_once(other):
    options = {"provider": "remote", "base_url": other.url, "screen": None}
    with contextlib.closing(coding_gym.CodingVectorEnv(2, **options)) as envs, pytest.raises(ProtocolVersionError):
        envs.reset(seed=0)


def test_async_environment_of_other_version_fails_at_once(other):
    async def reset():
        async with AsyncCodingEnv(provider="remote", base_url=other.url, screen=None) as env:
            await env.reset(seed=0)

    with pytest.raises(ProtocolVersionError):
        asyncio.run(reset())


def test_pool_of_other_version_fails_at_once(other):
    with pytest.raises(ProtocolVersionError), SandboxPool(1, provider="remote", base_url=other.url) as pool:
        pool.acquire()


def test_grader_of_other_version_fails_at_once(other):
    (task, *_) = load_suite("basics")
    with pytest.raises(ProtocolVersionError), Grader(provider="remote", base_url=other.url) as grader:
        grader.grade(task, "")


def test_collect_of_other_version_fails_at_once(other, tmp_path):
    options = {"provider": "remote", "base_url": other.url, "screen": None}
    with pytest.raises(ProtocolVersionError):
        collect("CodingEnv-v0", ["1"], 2, seed=1, path=tmp_path / "episodes", env_options=options, progress=False)


def test_code_interpreter_of_other_version_executes_nothing(other):
    with CodeInterpreter(other.url) as interpreter:
        for _ in range(2):
            with pytest.raises(ProtocolVersionError):
                interpreter.execute("open('left', 'w')")
        assert httpx.get(f"{other.url}/files", params={"path": "left"}).status_code == 404


def test_code_interpreter_of_same_version_executes(same):
    with CodeInterpreter(same.url) as interpreter:
        assert interpreter.execute("1 + 1").text == "2"


def test_coding_client_needs_no_version(other):
    with CodingClient(base_url=other.url) as client:
        client.reset()
        assert client.step(CodeAction(code="print('hi')")).observation.stdout == "hi\n"


@pytest.mark.parametrize("headers", [{}, {PROTOCOL_VERSION_HEADER: str(PROTOCOL_VERSION)}], ids=["none", "same"])
def test_server_accepts_missing_or_same_version(same, headers):
    with connect(same.ws_url, additional_headers=headers) as connection:
        assert connection.response.headers[PROTOCOL_VERSION_HEADER] == str(PROTOCOL_VERSION)
        connection.send('{"type": "state"}')
        assert json.loads(connection.recv())["type"] == "state"


@pytest.mark.parametrize("sent", [str(NEWER), "", "x" * 1000])
def test_server_refuses_clients_of_other_version(same, sent):
    with connect(same.ws_url, additional_headers={PROTOCOL_VERSION_HEADER: sent}) as connection:
        refusal = json.loads(connection.recv())
        assert refusal["data"]["code"] == "SESSION_ERROR"
        assert f"this server speaks {PROTOCOL_VERSION}" in refusal["data"]["message"]
        assert len(refusal["data"]["message"]) < 300
