"""The unmodified client of OpenEnv, against this package's server."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import shutil

import pytest

from coding_gym.sandbox.docker.images import ensure_image
from tests.openenv import peer
from tests.support.timing import eventually, promptly

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

KEYS = {"stdout", "stderr", "exit_code", "metadata"}


@pytest.fixture
def client(server):
    with peer.GenericEnvClient(**server.options).sync() as client:
        yield client


def run(client, code):
    result = client.step({"code": code})
    assert result.observation["stderr"] == ""
    return result.observation["stdout"]


# Episodes


def test_episode_returns_observations_and_metadata(client):
    result = client.reset()
    assert (result.reward, result.done) == (0.0, False)
    assert result.observation == {
        "stdout": "",
        "stderr": "",
        "exit_code": 0,
        "metadata": {"outcome": "ok", "state_lost": False},
    }
    result = client.step({"code": "x = 6\nprint(x * 7)"})
    assert set(result.observation) == KEYS
    assert result.observation["stdout"] == "42\n"
    assert result.metadata == result.observation["metadata"] == {"outcome": "ok", "state_lost": False}
    assert run(client, "x") == "6\n"
    assert (result.reward, result.done) == (0.1, False)


def test_reset_applies_known_arguments_and_ignores_others(client):
    draws = []
    for seed in (3, 3, 4):
        client.reset(seed=seed, episode_id=f"episode-{seed}", split="train", index=5, row={"a": [1]})
        assert client.state() == {"episode_id": f"episode-{seed}", "step_count": 0, "last_exit_code": 0}
        draws.append(run(client, "import random; random.random()"))
    assert draws[0] == draws[1] != draws[2]


def test_state_counts_steps_and_exit_codes(client):
    client.reset()
    name = client.state()["episode_id"]
    for number, (code, exit_code) in enumerate([("1", 0), ("1/0", 1), ("import sys; sys.exit(7)", 7)], 1):
        client.step({"code": code})
        assert client.state() == {"episode_id": name, "step_count": number, "last_exit_code": exit_code}
    client.reset()
    assert client.state()["episode_id"] != name


def test_step_before_reset_starts_episode(client):
    assert run(client, "6 * 7") == "42\n"


@pytest.mark.parametrize("make", ["dict", "GenericAction", "CodeAction"])
def test_every_action_type_is_accepted(client, make):
    action = dict if make == "dict" else getattr(peer, make)
    assert client.step(action(code="1", metadata={"row": 5})).observation["stdout"] == "1\n"


def test_invalid_actions_are_validation_errors(client):
    client.step({"code": "x = 1"})
    for action in ({}, {"cod": "1"}, {"code": 5}, {"code": "1", "language": "python"}):
        with pytest.raises(RuntimeError, match=r"^Server error: .*\(code: VALIDATION_ERROR\)$"):
            client.step(action)
    with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
        client.reset(seed=-1)
    assert run(client, "x") == "1\n"


def test_failing_code_is_an_observation(client):
    result = client.step({"code": "print('before')\n1 / 0"})
    assert result.observation["stdout"] == "before\n"
    assert result.observation["stderr"].endswith("ZeroDivisionError: division by zero\n")
    assert result.observation["exit_code"] == 1
    assert result.observation["metadata"]["outcome"] == "error"


def test_lone_surrogates_survive(client):
    assert run(client, "print('a\\ud800b')").startswith("a")
    with pytest.raises(RuntimeError, match="INVALID_JSON"):
        client.step({"code": "'\ud800'"})
    assert run(client, "6 * 7") == "42\n"


def test_flood_of_output_is_truncated(client):
    result = client.step({"code": "x = 1\nfor _ in range(20): print('x' * 1_000_000)"})
    assert len(result.observation["stdout"]) < 100_000
    assert run(client, "x") == "1\n"


def test_large_observation_arrives(client):
    """The response is as large as one with a screenshot in its metadata."""
    client.reset(max_output_chars=6_000_000)
    assert len(run(client, "import base64; print(base64.b64encode(bytes(3_000_000)).decode())")) == 4_000_001


# Typed, asynchronous and synchronous clients


def test_typed_client_parses_observation_and_state(server):
    with peer.CodingEnv(**server.options).sync() as env:
        result = env.reset(seed=1, episode_id="typed")
        assert result.observation.exit_code == 0
        assert env.state().last_exit_code == 0
        result = env.step(peer.CodeAction(code="print('hi')"))
        assert (result.observation.stdout, result.observation.stderr, result.observation.exit_code) == ("hi\n", "", 0)
        assert result.observation.metadata == {"outcome": "ok", "state_lost": False}
        assert (result.reward, result.done) == (0.1, False)
        env.step(peer.CodeAction(code="raise SystemExit(3)"))
        state = env.state()
        assert (state.episode_id, state.step_count, state.last_exit_code) == ("typed", 2, 3)


@pytest.mark.skipif(shutil.which("docker") is None, reason="OpenEnv's own provider calls the command docker")
def test_from_docker_image_starts_container(docker_engine):
    image = ensure_image(docker_engine, None)
    env = peer.CodingEnv.from_docker_image(image, env_vars={"REWARDS": "quality"}).sync()
    try:
        assert env.reset().observation.exit_code == 0
        result = env.step(peer.CodeAction(code="print('hi')"))
        assert (result.observation.stdout, result.reward) == ("hi\n", 0.1)
    finally:
        env.close()


def test_async_client_runs_episode(server):
    async def main():
        async with peer.CodingEnv(**server.options) as env:
            await env.reset()
            result = await env.step(peer.CodeAction(code="6 * 7"))
            assert result.observation.stdout == "42\n"
            child = await env.new_session()
            await child.step(peer.CodeAction(code="x = 1"))
            assert "NameError" in (await env.step(peer.CodeAction(code="x"))).observation.stderr
            return (await env.state()).step_count

    assert asyncio.run(main()) == 2


def test_client_blocks_without_event_loop(server):
    env = peer.CodingEnv(**server.options)
    try:
        assert env.reset().observation.exit_code == 0
        assert env.step(peer.CodeAction(code="print('hi')")).observation.stdout == "hi\n"
    finally:
        env.close()


def test_eight_clients_run_concurrently(server):
    async def episode(number):
        async with peer.GenericEnvClient(**server.options) as env:
            await env.reset(seed=number)
            await ready.wait()
            await env.step({"code": f"x = {number}; import time; began = time.time(); time.sleep(3); ended = time.time()"})
            return ast.literal_eval((await env.step({"code": "x, began, ended"})).observation["stdout"])

    async def main():
        nonlocal ready
        ready = asyncio.Barrier(8)
        return await asyncio.gather(*map(episode, range(8)))

    ready = None
    numbers, begins, ends = zip(*asyncio.run(main()), strict=True)
    assert numbers == tuple(range(8))
    assert max(begins) < min(ends)


# Pings and timeouts


def test_pings_are_answered_during_step(server):
    options = {**server.options, "websocket_ping_interval_s": 0.2, "websocket_ping_timeout_s": 0.3}
    with peer.GenericEnvClient(**options).sync() as client:
        for code in ("import time; time.sleep(1.5); print('done')", "n = 0\nfor _ in range(3 * 10**6): n += 1\nprint('done')"):
            assert run(client, code) == "done\n"


def test_endless_step_is_answered_before_client_timeout(server):
    with peer.GenericEnvClient(**server.options).sync() as client:
        client.reset(step_timeout=2)
        client.step({"code": "x = 1"})
        result = client.step({"code": "while True: pass"})
        assert result.observation["exit_code"] == 124
        assert result.observation["metadata"] == {"outcome": "timeout", "state_lost": False}
        assert run(client, "x") == "1\n"


def test_next_answer_after_client_timeout_is_correct(server):
    with peer.GenericEnvClient(**server.options, message_timeout_s=2).sync() as client:
        client.step({"code": "x = 1"})
        with pytest.raises(TimeoutError):
            client.step({"code": "import time; time.sleep(20); print('late')"})
        assert run(client, "print('mine')") == "mine\n"
        assert "NameError" in client.step({"code": "x"}).observation["stderr"]


def test_client_timeout_frees_its_session(small):
    """OpenEnv's own server keeps such a session until the step ends."""
    with peer.GenericEnvClient(**small.options, message_timeout_s=0.5).sync() as hurried:
        with pytest.raises(TimeoutError):
            hurried.step({"code": "import time; time.sleep(60)"})
        with promptly(), peer.GenericEnvClient(**small.options).sync() as other:
            assert retry(lambda: run(other, "6 * 7")) == "42\n"


# Capacity, rewards and tokens


def retry(action):
    results = []

    def succeeds():
        try:
            results.append(action())
        except RuntimeError as error:
            if "CAPACITY_REACHED" not in str(error):
                raise
        return results

    assert eventually(succeeds)
    return results[0]


def test_capacity(small):
    with peer.GenericEnvClient(**small.options).sync() as first:
        retry(first.reset)
        second = peer.GenericEnvClient(**small.options).sync()
        # The connection succeeds; the refusal is the response to the first request.
        with contextlib.closing(second.connect()):
            with pytest.raises(RuntimeError, match=r"Server at capacity: 1/1 .*\(code: CAPACITY_REACHED\)"):
                second.reset()
            first.close()
            assert retry(second.reset).observation["exit_code"] == 0


def test_server_default_rewards_apply(small):
    with peer.CodingEnv(**small.options).sync() as env:
        assert retry(env.reset).reward == 0.0
        assert env.step(peer.CodeAction(code="print(1)")).reward == 0.1
        result = env.step(peer.CodeAction(code="import os"))
        assert result.reward == -0.9
        assert result.observation.metadata["safety_violation"] == r"import\s+os"
        env.reset(rewards=[])
        assert env.step(peer.CodeAction(code="import os")).reward == 0.0


def test_reset_selects_rewards_of_episode(client):
    client.reset(rewards=["quality"])
    assert client.step({"code": "1 / 0"}).reward == 0.1
    with pytest.raises(RuntimeError, match=r"unknown rewards: 'speed'; known are safety, quality.*VALIDATION_ERROR"):
        client.reset(rewards=["speed"])


def test_missing_token_is_refused(provided):
    with pytest.raises(ConnectionError, match="403"):
        peer.GenericEnvClient(base_url=provided.url).sync().connect()
