"""``CodingClient``: every example of the readme of OpenEnv's coding environment, in our names, and what can go wrong."""

from __future__ import annotations

import base64
import contextlib
import threading
import time

import httpx
import msgspec
import pytest
from running_server import RunningServer, free_port
from websockets.sync.server import serve

import coding_gym
from coding_gym import CodeAction, CodeObservation, CodeState, CodingClient, coding_client
from coding_gym.config import SandboxConfig
from coding_gym.errors import (
    CapacityError,
    ConfigurationError,
    ImageBuildError,
    InvalidActionError,
    ProtocolError,
    SandboxStartError,
    TransportError,
    TransportTimeoutError,
)
from coding_gym.providers import start_sandbox
from coding_gym.providers.docker import our_containers
from coding_gym.providers.owner import Owner

README_EXAMPLE = [
    ("print('Hello, World!')", "Hello, World!\n"),
    ("x = 5 + 3\nprint(f'Result: {x}')", "Result: 8\n"),
    ("import math\nprint(math.pi)", "3.141592653589793\n"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "4") as server:
        yield server


@pytest.fixture
def client(server):
    with CodingClient(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def started(docker_engine):
    """A client that has started its container, with all that a container can be told."""
    with CodingClient.from_docker_image(
        additional_imports=["json", "toolz"],
        executor_backend="restricted",
        timeout_s=60,
        preload=(),
        mem="512m",
        environment={"REWARDS": "safety"},
    ) as client:
        yield client


def own_containers(engine):
    return {container.id for container, owner in our_containers(engine) if owner == Owner.current()}


def run_readme_example(client):
    result = client.reset()
    assert result.observation.exit_code == 0
    for code, stdout in README_EXAMPLE:
        result = client.step(CodeAction(code=code))
        assert (result.observation.stdout, result.observation.stderr, result.observation.exit_code) == (stdout, "", 0)
        assert result.reward == 0.0
        assert result.done is False


# The examples of the readme


@pytest.mark.docker
def test_from_docker_image_starts_a_container_and_close_removes_it(docker_engine):
    before = own_containers(docker_engine)
    client = CodingClient.from_docker_image(preload=())
    try:
        assert len(own_containers(docker_engine) - before) == 1
        run_readme_example(client)
    finally:
        client.close()
    assert own_containers(docker_engine) == before
    client.close()
    for call in (client.reset, client.state, lambda: client.step(CodeAction("1"))):
        with pytest.raises(TransportError, match="The client is closed"):
            call()


def test_a_server_that_runs_already_is_left_running(server):
    client = CodingClient(base_url=server.url)
    try:
        run_readme_example(client)
    finally:
        client.close()
    assert server.is_alive()
    assert httpx.get(f"{server.url}/health").json()["status"] == "healthy"


def test_both_ways_to_import_lead_to_the_same():
    assert coding_gym.CodingClient is coding_client.CodingClient
    assert coding_gym.CodeAction is coding_client.CodeAction


@pytest.mark.docker
def test_the_container_is_hardened_and_told_what_to_import(started, docker_engine):
    attributes = docker_engine.containers.get(started._sandbox.container.id).attrs
    assert attributes["HostConfig"]["ReadonlyRootfs"] is True
    assert attributes["HostConfig"]["NetworkMode"] == "none"
    assert attributes["HostConfig"]["Memory"] == 512 << 20
    assert "REWARDS=safety" in attributes["Config"]["Env"]
    run_readme_example(started)
    assert started.step(CodeAction(code="import toolz\nprint(toolz.first('ab'))")).observation.stdout == "a\n"
    refused = started.step(CodeAction(code="import os")).observation
    assert (refused.exit_code, "ImportError" in refused.stderr) == (1, True)


@pytest.mark.docker
def test_an_image_by_name(started, docker_engine):
    image = docker_engine.containers.get(started._sandbox.container.id).attrs["Config"]["Image"]
    with CodingClient.from_docker_image(image, timeout_s=60, preload=()) as client:
        run_readme_example(client)


@pytest.mark.docker
def test_what_cannot_start_says_so_and_leaves_nothing_behind(docker_engine):
    before = own_containers(docker_engine)
    with pytest.raises(SandboxStartError, match=r"start_timeout=0.001"):
        CodingClient.from_docker_image(timeout_s=0.001, preload=())
    with pytest.raises(ImageBuildError, match="There is no image 'coding-env:latest'"):
        CodingClient.from_docker_image("coding-env:latest")
    with pytest.raises(ConfigurationError, match="executor_backend"):
        CodingClient.from_docker_image(executor_backend="nope")
    with pytest.raises(ConfigurationError, match="message_timeout_s"):
        CodingClient.from_docker_image(message_timeout_s=0, preload=())
    assert own_containers(docker_engine) == before


@pytest.mark.parametrize("names", ["numpy", ["a,b"], [""], [5]])
def test_what_are_no_names_of_modules(names):
    with pytest.raises(ConfigurationError, match=r"additional_imports= to be a list of module names such as \['numpy'\]"):
        CodingClient.from_docker_image(additional_imports=names)


@pytest.mark.parametrize("environment", [["A=1"], {"A": 1}, {"": "1"}, {"A=B": "1"}, {"A": "\0"}])
def test_what_are_no_environment_variables(environment):
    with pytest.raises(ConfigurationError, match="environment= to be a mapping of names to values"):
        SandboxConfig(environment=environment)


def test_the_environment_of_a_sandbox_is_its_servers(provider):
    config = SandboxConfig(provider=provider, environment={"REWARDS": "safety"}, preload=())
    with contextlib.closing(start_sandbox(config)) as sandbox:
        with CodingClient(sandbox.address) as client:
            assert client.step(CodeAction("import os")).reward == -1.0
        assert sandbox.is_healthy()


# Episodes


def test_state(client):
    assert client.state() == CodeState(episode_id=None, step_count=0, last_exit_code=0)
    client.reset(episode_id="first")
    client.step(CodeAction(code="1"))
    client.step(CodeAction(code="import sys; sys.exit(7)"))
    assert client.state() == CodeState(episode_id="first", step_count=2, last_exit_code=7)
    client.reset()
    assert client.state().episode_id not in (None, "first")
    assert client.state().step_count == 0


def test_state_persists_until_a_reset(client):
    client.step(CodeAction("x = 41"))
    assert client.step(CodeAction("x + 1")).observation.stdout == "42\n"
    client.reset()
    assert "NameError" in client.step(CodeAction("x")).observation.stderr


def test_an_exception_keeps_what_was_printed(client):
    observation = client.step(CodeAction("print('before')\n1 / 0")).observation
    assert observation.stdout == "before\n"
    assert observation.stderr.startswith("Traceback")
    assert "ZeroDivisionError" in observation.stderr
    assert observation.exit_code == 1
    assert observation.metadata == {"outcome": "error", "state_lost": False}


def test_a_seed(client):
    draws = []
    for seed in (3, 3, 4):
        client.reset(seed=seed)
        draws.append(client.step(CodeAction("import random; random.random()")).observation.stdout)
    assert draws[0] == draws[1] != draws[2]


def test_rewards_by_name(client):
    assert client.reset(rewards=["safety", "quality"]).reward == 0.0
    result = client.step(CodeAction("import os"))
    assert result.reward == -0.9
    assert result.observation.metadata["safety_violation"] == r"import\s+os"
    with pytest.raises(ProtocolError, match="unknown rewards: 'speed'; known are safety, quality"):
        client.reset(rewards=["speed"])


def test_options_of_a_reset(client):
    client.reset(step_timeout=0.3)
    observation = client.step(CodeAction("while True: pass")).observation
    assert observation.exit_code == 124
    assert client.step(CodeAction("6 * 7")).observation.stdout == "42\n"


@pytest.mark.parametrize("text", ["é \U0001f600", "'\\ud800'", "", "\n" * 1000, "x" * 1_000_000])
def test_any_text(client, text):
    assert client.step(CodeAction(f"t = {text!r}\nlen(t)")).observation.stdout == f"{len(text)}\n"


# Screenshots


def test_a_screenshot_is_asked_for_only_when_wanted():
    assert msgspec.json.encode(CodeAction(code="1")) == b'{"code":"1"}'
    assert msgspec.json.decode(msgspec.json.encode(CodeAction("1", capture_screenshot=True)))["capture_screenshot"] is True


def test_a_screenshot_is_found_wherever_the_server_puts_it():
    png = base64.b64encode(b"\x89PNG").decode()
    fields = {"stdout": "", "stderr": "", "exit_code": 0}
    assert msgspec.convert(fields, CodeObservation).screenshot is None
    for more in ({"screenshot": png}, {"metadata": {"screenshot": png}}):
        assert msgspec.convert({**fields, **more}, CodeObservation).screenshot == png


# What goes wrong


@pytest.mark.parametrize("action", ["print(1)", {"code": "1"}, None, CodeAction("'\ud800'"), CodeAction(None), CodeAction(5)])
def test_what_is_no_action_is_refused_and_costs_nothing(client, action):
    client.step(CodeAction("x = 1"))
    with pytest.raises(InvalidActionError, match=r"Expected CodeAction\(code=...\)"):
        client.step(action)
    assert client.step(CodeAction("x")).observation.stdout == "1\n"


def test_a_late_answer_is_nobodys(server):
    with CodingClient(base_url=server.url, message_timeout_s=0.5) as client:
        client.step(CodeAction("x = 1"))
        with pytest.raises(TransportTimeoutError, match=r"did not answer within 0\.5 s"):
            client.step(CodeAction("import time; time.sleep(1); print('late')"))
        with pytest.raises(TransportError, match=r"session is lost.*Call reset\(\)"):
            client.step(CodeAction("x"))
        client.reset()
        assert "NameError" in client.step(CodeAction("x")).observation.stderr


def test_capacity(server):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(CodingClient(base_url=server.url)) for _ in range(5)]
        for client in clients[:4]:
            client.reset()
        with pytest.raises(CapacityError, match="CAPACITY_REACHED"):
            clients[4].reset()
        clients[0].close()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with contextlib.suppress(CapacityError):
                clients[4].reset()
                break
        run_readme_example(clients[4])


def test_a_token(tmp_path):
    with RunningServer(tmp_path, token="secret") as server:
        with pytest.raises(ProtocolError, match="does not accept a session"):
            CodingClient(base_url=server.url)
        with CodingClient(base_url=server.url, token="secret") as client:
            run_readme_example(client)


def test_no_server():
    with pytest.raises(TransportError, match="No connection to"):
        CodingClient(base_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ConfigurationError, match="a server's URL"):
        CodingClient(base_url="ftp://127.0.0.1")


@pytest.mark.parametrize("option", ["connect_timeout_s", "message_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "5", None])
def test_what_is_no_time(option, value):
    with pytest.raises(ConfigurationError, match=f"{option}= to be a positive number"):
        CodingClient(base_url="http://127.0.0.1:1", **{option: value})


def test_a_server_that_dies_and_comes_back(tmp_path):
    server = RunningServer(tmp_path)
    with CodingClient(base_url=server.url) as client:
        client.reset()
        server.stop()
        with pytest.raises(TransportError, match="broke"):
            client.step(CodeAction("1"))
        with pytest.raises(TransportError, match="No connection"):
            client.reset()
        with RunningServer(tmp_path, port=server.port):
            client.reset()
            assert client.step(CodeAction("6 * 7")).observation.stdout == "42\n"
        with RunningServer(tmp_path, port=server.port):
            # Nobody has looked since.
            client.reset()
            assert client.step(CodeAction("6 * 7")).observation.stdout == "42\n"


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        ("nonsense", ProtocolError, "no message"),
        ('{"type": "observation", "data": {"observation": {"board": []}}}', ProtocolError, "no message"),
        ('{"type": "state", "data": {}}', ProtocolError, "Expected the answer to the request"),
        (
            '{"type": "error", "data": {"message": "m", "code": "FACTORY_ERROR", "factory_name": "f"}}',
            ProtocolError,
            "FACTORY_ERROR",
        ),
        ('{"type": "error", "data": {"message": "m", "code": "CAPACITY_REACHED"}}', CapacityError, "CAPACITY_REACHED"),
    ],
)
def test_odd_answers(answer, error, reason):
    def converse(connection):
        for _ in connection:
            connection.send(answer)

    with serve(converse, "127.0.0.1", 0) as odd:
        thread = threading.Thread(target=odd.serve_forever)
        thread.start()
        try:
            port = odd.socket.getsockname()[1]
            with CodingClient(base_url=f"127.0.0.1:{port}") as client, pytest.raises(error, match=reason):
                client.reset()
        finally:
            odd.shutdown()
            thread.join()


def test_an_answer_as_old_servers_gave_it():
    """Without metadata, and without a reward."""

    def converse(connection):
        for frame in connection:
            assert frame in ('{"type":"reset","data":{}}', '{"type":"step","data":{"code":"1"}}')
            connection.send(
                '{"type":"observation","data":{"observation":{"stdout":"","stderr":"","exit_code":0},"reward":null}}'
            )

    with serve(converse, "127.0.0.1", 0) as old:
        thread = threading.Thread(target=old.serve_forever)
        thread.start()
        try:
            with CodingClient(base_url=f"127.0.0.1:{old.socket.getsockname()[1]}") as client:
                assert client.reset().reward is None
                assert client.step(CodeAction("1")).observation.metadata == {}
        finally:
            old.shutdown()
            thread.join()
