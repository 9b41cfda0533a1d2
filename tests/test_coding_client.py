"""``CodingClient``: the README examples of OpenEnv's coding environment, with this package's names, and error handling."""

from __future__ import annotations

import base64
import contextlib
import threading

import httpx
import msgspec
import pytest
from websockets.sync.server import serve

import coding_gym
from coding_gym import CodeAction, CodeObservation, CodeState, CodingClient
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
from coding_gym.openenv import client as coding_client
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.ownership import OwnerProcess
from tests.support.running_server import RunningServer, free_port
from tests.support.timing import eventually

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
    """A client that has started its container, with every container option set."""
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
    return {container.id for container, owner in our_containers(engine) if owner == OwnerProcess.current()}


def run_readme_example(client, *, reward=0.1):
    result = client.reset()
    assert result.observation.exit_code == 0
    for code, stdout in README_EXAMPLE:
        result = client.step(CodeAction(code=code))
        assert (result.observation.stdout, result.observation.stderr, result.observation.exit_code) == (stdout, "", 0)
        assert result.reward == reward
        assert result.done is False


# README examples


@pytest.mark.docker
def test_from_docker_image_starts_container_until_close(docker_engine):
    before = own_containers(docker_engine)
    client = CodingClient.from_docker_image(preload=())
    try:
        assert len(own_containers(docker_engine) - before) == 1
        run_readme_example(client)
    finally:
        client.close()
    # Those of other tests may have ended, too.
    assert own_containers(docker_engine) <= before
    client.close()
    for call in (client.reset, client.state, lambda: client.step(CodeAction("1"))):
        with pytest.raises(TransportError, match="The client is closed"):
            call()


def test_close_leaves_existing_server_running(server):
    client = CodingClient(base_url=server.url)
    try:
        run_readme_example(client)
    finally:
        client.close()
    assert server.is_alive()
    assert httpx.get(f"{server.url}/health").json()["status"] == "healthy"


def test_both_import_paths_give_same_classes():
    assert coding_gym.CodingClient is coding_client.CodingClient
    assert coding_gym.CodeAction is coding_client.CodeAction


@pytest.mark.docker
def test_container_is_hardened_and_has_imports(started, docker_engine):
    attributes = docker_engine.containers.get(started._sandbox.container.id).attrs
    assert attributes["HostConfig"]["ReadonlyRootfs"] is True
    assert attributes["HostConfig"]["NetworkMode"] == "none"
    assert attributes["HostConfig"]["Memory"] == 512 << 20
    assert "REWARDS=safety" in attributes["Config"]["Env"]
    run_readme_example(started, reward=0.0)
    assert started.step(CodeAction(code="import toolz\nprint(toolz.first('ab'))")).observation.stdout == "a\n"
    refused = started.step(CodeAction(code="import os")).observation
    assert (refused.exit_code, "ImportError" in refused.stderr) == (1, True)


@pytest.mark.docker
def test_image_can_be_given_by_name(started, docker_engine):
    image = docker_engine.containers.get(started._sandbox.container.id).attrs["Config"]["Image"]
    with CodingClient.from_docker_image(image, timeout_s=60, preload=()) as client:
        run_readme_example(client)


@pytest.mark.docker
def test_failed_start_raises_and_leaves_no_container(docker_engine):
    before = own_containers(docker_engine)
    with pytest.raises(SandboxStartError, match=r"start_timeout=0.001"):
        CodingClient.from_docker_image(timeout_s=0.001, preload=())
    with pytest.raises(ImageBuildError, match="Image 'coding-env:latest' not found"):
        CodingClient.from_docker_image("coding-env:latest")
    with pytest.raises(ConfigurationError, match="executor_backend"):
        CodingClient.from_docker_image(executor_backend="nope")
    with pytest.raises(ConfigurationError, match="message_timeout_s"):
        CodingClient.from_docker_image(message_timeout_s=0, preload=())
    assert own_containers(docker_engine) == before


@pytest.mark.parametrize("names", ["numpy", ["a,b"], [""], [5]])
def test_invalid_module_names_are_refused(names):
    with pytest.raises(ConfigurationError, match=r"additional_imports= to be a list of module names such as \['numpy'\]"):
        CodingClient.from_docker_image(additional_imports=names)


@pytest.mark.parametrize("environment", [["A=1"], {"A": 1}, {"": "1"}, {"A=B": "1"}, {"A": "\0"}])
def test_invalid_environment_variables_are_refused(environment):
    with pytest.raises(ConfigurationError, match="environment= to be a mapping of names to values"):
        SandboxConfig(environment=environment)


@pytest.mark.every_provider
def test_sandbox_environment_is_passed_to_server(provider):
    config = SandboxConfig(provider=provider, environment={"REWARDS": "safety"}, preload=())
    with contextlib.closing(start_sandbox(config)) as sandbox:
        with CodingClient(sandbox.address) as client:
            assert client.step(CodeAction("import os")).reward == -1.0
        assert sandbox.is_healthy()


# Episodes


def test_state_counts_steps_and_exit_codes(client):
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


def test_exception_keeps_earlier_output(client):
    observation = client.step(CodeAction("print('before')\n1 / 0")).observation
    assert observation.stdout == "before\n"
    assert observation.stderr.startswith("Traceback")
    assert "ZeroDivisionError" in observation.stderr
    assert observation.exit_code == 1
    assert observation.metadata == {"outcome": "error", "state_lost": False}


def test_seed_makes_random_numbers_reproducible(client):
    draws = []
    for seed in (3, 3, 4):
        client.reset(seed=seed)
        draws.append(client.step(CodeAction("import random; random.random()")).observation.stdout)
    assert draws[0] == draws[1] != draws[2]


def test_reset_selects_rewards_by_name(client):
    assert client.reset(rewards=["safety", "quality"]).reward == 0.0
    result = client.step(CodeAction("import os"))
    assert result.reward == -0.9
    assert result.observation.metadata["safety_violation"] == r"import\s+os"
    with pytest.raises(ConfigurationError, match="unknown rewards: 'speed'; known are safety, quality"):
        client.reset(rewards=["speed"])


def test_reset_options_apply(client):
    client.reset(step_timeout=2)
    observation = client.step(CodeAction("while True: pass")).observation
    assert observation.exit_code == 124
    assert client.step(CodeAction("6 * 7")).observation.stdout == "42\n"


@pytest.mark.parametrize("text", ["é \U0001f600", "'\\ud800'", "", "\n" * 1000, "x" * 1_000_000])
def test_any_text_round_trips(client, text):
    assert client.step(CodeAction(f"t = {text!r}\nlen(t)")).observation.stdout == f"{len(text)}\n"


# Screenshots


def test_screenshot_is_requested_only_on_demand():
    assert msgspec.json.encode(CodeAction(code="1")) == b'{"code":"1"}'
    assert msgspec.json.decode(msgspec.json.encode(CodeAction("1", capture_screenshot=True)))["capture_screenshot"] is True


def test_screenshot_is_read_from_observation_or_metadata():
    png = base64.b64encode(b"\x89PNG").decode()
    fields = {"stdout": "", "stderr": "", "exit_code": 0}
    assert msgspec.convert(fields, CodeObservation).screenshot is None
    for more in ({"screenshot": png}, {"metadata": {"screenshot": png}}):
        assert msgspec.convert({**fields, **more}, CodeObservation).screenshot == png


# Errors


@pytest.mark.parametrize("action", ["print(1)", {"code": "1"}, None, CodeAction("'\ud800'"), CodeAction(None), CodeAction(5)])
def test_invalid_action_is_refused_without_effect(client, action):
    client.step(CodeAction("x = 1"))
    with pytest.raises(InvalidActionError, match=r"Expected CodeAction\(code=...\)"):
        client.step(action)
    assert client.step(CodeAction("x")).observation.stdout == "1\n"


def test_late_answer_is_discarded(server):
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

        def has_place():
            with contextlib.suppress(CapacityError):
                return clients[4].reset()

        assert eventually(has_place)
        run_readme_example(clients[4])


def test_server_token_is_required(tmp_path):
    with RunningServer(tmp_path, token="secret") as server:
        with pytest.raises(ProtocolError, match="does not accept a session"):
            CodingClient(base_url=server.url)
        with CodingClient(base_url=server.url, token="secret") as client:
            run_readme_example(client)


def test_unreachable_server_and_invalid_url_raise():
    with pytest.raises(TransportError, match="No connection to"):
        CodingClient(base_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ConfigurationError, match="a server's URL"):
        CodingClient(base_url="ftp://127.0.0.1")


@pytest.mark.parametrize("option", ["connect_timeout_s", "message_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "5", None])
def test_invalid_timeout_is_refused(option, value):
    with pytest.raises(ConfigurationError, match=f"{option}= to be a positive number"):
        CodingClient(base_url="http://127.0.0.1:1", **{option: value})


def test_reset_reconnects_after_server_restart(tmp_path):
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
            # The client has sent no request since the previous server stopped.
            client.reset()
            assert client.step(CodeAction("6 * 7")).observation.stdout == "42\n"


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        ("nonsense", ProtocolError, "malformed message"),
        ('{"type": "state", "unknown": ' + "[" * 5000, ProtocolError, "malformed message"),
        ('{"type": "observation", "data": {"observation": {"board": []}}}', ProtocolError, "malformed message"),
        ('{"type": "state", "data": {}}', ProtocolError, "Expected the answer to the request"),
        (
            '{"type": "error", "data": {"message": "m", "code": "FACTORY_ERROR", "factory_name": "f"}}',
            ProtocolError,
            "FACTORY_ERROR",
        ),
        ('{"type": "error", "data": {"message": "m", "code": "CAPACITY_REACHED"}}', CapacityError, "CAPACITY_REACHED"),
    ],
)
def test_malformed_answers_raise(answer, error, reason):
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


def test_answers_of_old_servers_are_accepted():
    """Old servers send no metadata and no reward."""

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
