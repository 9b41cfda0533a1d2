"""What environments report in real sandboxes."""

from __future__ import annotations

import asyncio

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv, SandboxPool
from coding_gym.telemetry import observation, observed_pools
from coding_gym_studio.watching.table import SessionTable
from tests.support.timing import eventually


@pytest.fixture
def table(monkeypatch):
    table = SessionTable()
    monkeypatch.setattr(observation, "observers", (table,))
    return table


def rows(table):
    return sorted(table.changes({}).sessions, key=lambda row: row.index)


def test_single_environment(table):
    env = gym.make("CodingEnv-v0", provider="local", screen=None)
    env.reset(seed=1)
    (row,) = rows(table)
    assert (row.kind, row.state, row.episodes, row.steps, row.group) == ("CodingEnv-v0", "idle", 1, 0, None)
    env.step("print(6 * 7)")
    env.step("1 / 0")
    (row,) = rows(table)
    assert (row.outcome, row.steps, row.action) == ("error", 2, "1 / 0")
    history = table.get(row.id).history()
    assert [(step.number, step.stdout, step.outcome) for step in history] == [(1, "42\n", "ok"), (2, "", "error")]
    assert "ZeroDivisionError" in history[1].stderr
    assert history[0].seconds > 0
    env.close()
    assert rows(table)[0].state == "closed"


def test_vector_environment_with_a_pool(table):
    with SandboxPool(size=1, sessions=3, provider="local") as pool:
        assert pool in observed_pools()
        envs = gym.make_vec("CodingEnv-v0", num_envs=3, pool=pool, screen=None, max_episode_steps=2)
        envs.reset(seed=1)
        assert table.summary().pools[-1].busy == 3
        envs.step(["print(1)"] * 3)
        envs.step(["print(2)", "raise SystemExit(3)", "print(2)"])
        found = rows(table)
        assert [(row.index, row.state, row.steps) for row in found] == [(0, "ended", 2), (1, "ended", 2), (2, "ended", 2)]
        assert len({row.group for row in found}) == 1
        envs.step(["print(3)"] * 3)
        assert [(row.state, row.episodes, row.steps) for row in rows(table)] == [("idle", 2, 0)] * 3
        envs.close()
    assert pool not in observed_pools()
    assert table.summary().outcomes["ok"] == 5


def test_tasks_are_reported_once_they_are_graded(table):
    env = gym.make("CodingTask-v0", suite="basics", provider="local", screen=None)
    env.reset(seed=1, options={"task_id": env.unwrapped.suite.ids[0]})
    task = env.unwrapped.task
    env.step(task.reference)
    (row,) = rows(table)
    assert (row.label, row.state, row.reward, row.steps) == (task.id, "ended", 1.0, 1)
    assert row.tests is not None
    assert row.tests[0] == row.tests[1]
    env.close()


def test_refused_resets_leave_no_session_waiting(table):
    env = gym.make("CodingEnv-v0", provider="local", screen=None)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="colour"):
        env.reset(options={"colour": 1})
    assert rows(table)[0].state == "idle"
    env.close()


def test_asynchronous_environment(table):
    async def run():
        async with AsyncCodingEnv(provider="local", screen=None) as env:
            await env.step("print(1)")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await env.step("import time; time.sleep(30)")
            assert await asyncio.to_thread(eventually, lambda: rows(table)[0].state == "idle")
            return rows(table)[0]

    row = asyncio.run(run())
    assert (row.state, row.steps, row.outcome) == ("idle", 1, "ok")
