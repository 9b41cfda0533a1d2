"""The calls that trainers make to OpenEnv's client and server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import jsonschema
import pytest

from tests.openenv import peer

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_trl(server):
    """``GRPOTrainer(environment_factory=...)``: one instance per rollout; its public methods are the model's tools."""

    class Environment:
        def __init__(self):
            self.client = peer.CodingEnv(**server.options)
            self.reward, self.done = 0.0, False

        def reset(self, **row):
            self.client.reset(**row)
            self.reward, self.done = 0.0, False

        def run(self, code: str) -> str:
            """Run Python code."""
            result = self.client.step(peer.CodeAction(code=code))
            self.reward, self.done = result.reward, result.done
            return result.observation.stdout or result.observation.stderr

    environments = [Environment() for _ in range(8)]
    try:
        for number, environment in enumerate(environments):
            environment.reset(prompt=f"task {number}", answer=number, rewards=["quality"])
        for number, environment in enumerate(environments):
            environment.run(f"x = {number}")
        assert [environment.run("x * 2") for environment in environments] == [f"{2 * number}\n" for number in range(8)]
        assert [(environment.reward, environment.done) for environment in environments] == [(0.1, False)] * 8
    finally:
        for environment in environments:
            environment.client.close()


def test_unsloth(plain):
    """``launch_openenv`` gives ``/health`` 0.1 s to respond, at launch and on every reuse, whatever runs in the meantime."""
    busy = peer.GenericEnvClient(base_url=plain.url).sync()
    # The client is created in advance: most of its cost is the setup of TLS, which is unrelated to the server.
    with contextlib.closing(busy.connect()), ThreadPoolExecutor(1) as thread, httpx.Client(timeout=0.1) as health:
        running = thread.submit(busy.step, {"code": "n = 0\nwhile n < 10**8: n += 1", "timeout_s": 1.0})
        answers = 0
        while not running.done():
            # A busy machine may answer some of them too late.
            with contextlib.suppress(httpx.TimeoutException):
                assert "healthy" in health.get(f"{plain.url}/health", headers={"connection": "close"}).text
                answers += not running.done()
            time.sleep(0.02)
    assert answers
    client = peer.CodingEnv(base_url=plain.url)
    assert client.reset().observation.exit_code == 0
    assert client.step(peer.CodeAction(code="1")).observation.stdout == "1\n"
    client.close()


def test_skyrl(server):
    """Written for the original, synchronous client: resets in ``__init__``, and extracts actions from ``<action>`` tags."""
    env = peer.CodingEnv(**server.options)
    try:
        env.reset()
        (code,) = re.findall(r"<action>(.*?)</action>", "I try <action>print('hi')</action>", re.DOTALL)
        result = env.step(peer.CodeAction(code=code))
        assert "stdout='hi\\n'" in str(result.observation)
        assert (result.reward, result.done) == (0.1, False)
    finally:
        env.close()


def test_miles(small):
    """Retries while the error message contains ``CAPACITY_REACHED``."""

    async def rollout(number):
        while True:
            try:
                async with peer.CodingEnv(**small.options) as env:
                    await env.reset()
                    return (await env.step(peer.CodeAction(code=f"print({number})"))).reward
            except RuntimeError as error:
                if "CAPACITY_REACHED" not in str(error):
                    raise
                await asyncio.sleep(0.05)

    async def main():
        async with asyncio.timeout(60):
            return await asyncio.gather(*map(rollout, range(4)))

    assert asyncio.run(main()) == [0.1] * 4


def test_verifiers(plain):
    """``OpenEnvUser``: if an action has a single required field, it is the raw text of the model."""
    schema = httpx.get(f"{plain.url}/schema").json()["action"]
    assert schema["required"] == ["code"]
    assert schema["properties"]["code"]["type"] == "string"
    client = peer.GenericEnvClient(base_url=plain.url).sync()
    client.connect()
    try:
        result = client.reset(seed=7, split="train")
        assert json.loads(json.dumps(result.observation)) == result.observation
        action = {"code": "print('hi')"}
        jsonschema.validate(action, schema)
        result = client.step(action)
        assert json.loads(json.dumps(result.observation))["stdout"] == "hi\n"
        assert result.done is False
    finally:
        client.close()


def test_torchforge(server):
    env = peer.GenericEnvClient(**server.options)
    env.reset()
    env.step({"code": "1"})
    assert env.state()["step_count"] == 1
    env.close()


def test_art(server):
    """Makes blocking calls, each in an arbitrary thread."""

    async def main():
        env = peer.GenericEnvClient(**server.options).sync()
        await asyncio.to_thread(env.reset)
        result = await asyncio.to_thread(env.step, {"code": "6 * 7"})
        await asyncio.to_thread(env.close)
        return result.observation["stdout"]

    assert asyncio.run(main()) == "42\n"
