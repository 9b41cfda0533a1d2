"""Settings that the machine or the server does not support raise ``ConfigurationError`` at once, in every API.

The sandboxes have a PATH without Xvfb and Blackbox, and lack one Python package, so that all machines behave alike.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv, CodeAction, CodeInterpreter, CodingClient, SandboxPool
from coding_gym.cli.record import record_program
from coding_gym.client.session import Session
from coding_gym.datasets import collect
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Grader, GradingLimits, Running, ScreenStep, ScreenTests, Task, VerdictOutcome
from coding_gym_server.protocol.grading import Asserts
from tests.support.running_server import RunningServer
from tests.support.timing import promptly

NO_XVFB = {"provider": "local", "preload": (), "environment": {"PATH": "/nowhere"}}
SCREEN = (64, 48)
NO_SCREEN = r"screen=\(64, 48\) is not available: the sandbox lacks .*Xvfb.*apt install xvfb.*screen=None"
NO_WINDOW_MANAGER = "window_manager=True is not available: the sandbox lacks"
NO_KERNEL = "'jupyter:nope' is not installed"


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(1, sessions=4, acquire_timeout=60, **NO_XVFB) as pool:
        yield pool


@pytest.fixture
def resets(monkeypatch):
    """List of the requests sent by sessions."""
    sent = []
    ask = Session._ask

    def count(session, request):
        sent.append(request)
        ask(session, request)

    monkeypatch.setattr(Session, "_ask", count)
    return sent


@pytest.fixture
def readable(open_directory):
    """Environment variables of a server that can read ``open_directory``."""
    return {"PYTHONPATH": os.pathsep.join([str(open_directory), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


@pytest.fixture
def without_smolagents(open_directory, readable):
    """Environment variables of a server whose interpreter cannot import ``smolagents``."""
    (open_directory / "sitecustomize.py").write_text("import sys\nsys.modules['smolagents'] = None\n")
    return readable


# Screens


@pytest.mark.parametrize(
    ("env_id", "options", "said"),
    [
        ("CodingEnv-v0", {"screen": SCREEN}, NO_SCREEN),
        ("CodingEnvGUI-v0", {"screen": SCREEN}, NO_SCREEN),
        ("CodingEnvGUI-v0", {}, r"screen=\(800, 600\) is not available"),
        ("CodingTask-v0", {"suite": "basics", "screen": SCREEN}, NO_SCREEN),
        ("CodingEnv-v0", {"window_manager": True}, r"screen=\(800, 600\) is not available"),
        ("CodingEnv-v0", {"backend": "jupyter:nope"}, NO_KERNEL),
    ],
)
def test_reset_refuses_at_once(pool, resets, env_id, options, said):
    with gym.make(env_id, pool=pool, **options) as env:
        with pytest.raises(ConfigurationError, match=said):
            env.reset(seed=1)
        assert len(resets) == 1
        with pytest.raises(ConfigurationError, match=said):
            env.reset(seed=1)


def test_automatic_screen_stays_black(pool):
    with gym.make("CodingEnv-v0", pool=pool) as env:
        observation, _ = env.reset(seed=1)
        assert not observation["screenshot"].any()
        assert env.step("print(1)")[0]["stdout"] == "1\n"


def test_window_manager_is_refused_without_blackbox(open_directory, readable):
    # Xvfb must be found, but is never started, because no program draws anything.
    (open_directory / "Xvfb").touch(mode=0o755)
    with SandboxPool(**{**NO_XVFB, "environment": {"PATH": str(open_directory), **readable}}) as pool:
        for screen in ({}, {"screen": SCREEN}):
            with (
                gym.make("CodingEnv-v0", pool=pool, window_manager=True, **screen) as env,
                pytest.raises(ConfigurationError, match=NO_WINDOW_MANAGER),
            ):
                env.reset(seed=1)


def test_async_reset_refuses_at_once(pool):
    async def main():
        async with asyncio.timeout(20):
            for _ in range(2):
                env = AsyncCodingEnv(pool=pool, screen=SCREEN)
                with pytest.raises(ConfigurationError, match=NO_SCREEN):
                    await env.reset(seed=1)
                await env.aclose()

    asyncio.run(main())
    assert pool.stats.lost == 0


@pytest.mark.parametrize("env_id", ["CodingEnv-v0", "CodingEnvGUI-v0", "CodingTask-v0"])
def test_vector_reset_refuses_at_once(pool, resets, env_id):
    options = {"suite": "basics", **NO_XVFB} if env_id == "CodingTask-v0" else {"pool": pool}
    with closing(gym.make_vec(env_id, num_envs=2, screen=SCREEN, **options)) as envs:
        with pytest.raises(ConfigurationError, match=NO_SCREEN):
            envs.reset(seed=1)
        assert len(resets) <= 2
        with pytest.raises(ConfigurationError, match=NO_SCREEN):
            envs.reset(seed=1)


def test_collect_refuses_at_once(pool, tmp_path, resets):
    options = {"env_options": {"screen": SCREEN}, "sessions": 1}
    with pytest.raises(ConfigurationError, match=NO_SCREEN):
        collect("CodingEnv-v0", "random", 3, seed=1, path=tmp_path / "data", pool=pool, **options)
    assert len(resets) == 1
    assert not (tmp_path / "data" / "faults.jsonl").exists()


def test_grader_refuses_screen_tests_at_once(pool, resets):
    tests = ScreenTests(steps=(ScreenStep(expect=(Running(),)),), screen=SCREEN)
    task = Task(id="t", prompt="p", tests=tests)
    with Grader(pool=pool, workers=2) as grader:
        with pytest.raises(ConfigurationError, match=f"These tests cannot be run in this sandbox: {NO_SCREEN}"):
            grader.grade(task, "1")
        assert len(resets) == 1
        with pytest.raises(ConfigurationError, match=NO_SCREEN):
            list(grader.grade_many([(task, "1")] * 3))


@pytest.mark.parametrize(
    "change",
    [{"files": {"a": "1", "a/b": "2"}}, {"limits": GradingLimits(wall_timeout=-1.0)}],
    ids=["files", "limits"],
)
def test_grader_refuses_invalid_tasks_at_once(pool, resets, change):
    tests = Asserts(cases=("assert f() == 1",))
    with Grader(pool=pool, workers=1) as grader:
        with pytest.raises(ConfigurationError):
            grader.grade(Task(id="t", prompt="p", tests=tests, entry_point="f", **change), "def f(): return 1")
        assert len(resets) == 1
        verdict = grader.grade(Task(id="t", prompt="p", tests=tests, entry_point="f"), "def f(): return 1")
    assert verdict.outcome is VerdictOutcome.PASSED


def test_recording_refuses_at_once():
    with pytest.raises(ConfigurationError, match=NO_SCREEN):
        record_program("1", seconds=1, rate=10, screen=SCREEN, **NO_XVFB)


def test_remote_server_refuses_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with RunningServer(tmp_path) as server:
        with (
            gym.make("CodingEnv-v0", provider="remote", base_url=server.url, screen=SCREEN) as env,
            pytest.raises(ConfigurationError, match=NO_SCREEN),
        ):
            env.reset()
        with CodingClient(server.url) as client:
            with pytest.raises(ConfigurationError, match=NO_SCREEN):
                client.reset(screen=SCREEN)
            client.reset()
            assert client.step(CodeAction("1")).observation.stdout == "1\n"


# Backends


@pytest.mark.parametrize("name", ["smolagents", "jupyter:nope"])
def test_missing_default_backend_is_refused_at_start(without_smolagents, name):
    options = {"provider": "local", "preload": (), "environment": without_smolagents}
    with promptly():
        with gym.make("CodingEnv-v0", backend=name, **options) as env, pytest.raises(ConfigurationError, match=name) as caught:
            env.reset()
        assert "not installed" in str(caught.value)


def test_missing_session_backend_names_install_command(without_smolagents):
    options = {"provider": "local", "preload": (), "environment": without_smolagents}
    with (
        SandboxPool(1, **options) as pool,
        gym.make("CodingEnv-v0", pool=pool, backend="smolagents") as env,
        pytest.raises(ConfigurationError, match=r"needs 'smolagents', which is not installed: pip install"),
    ):
        env.reset()


def test_pool_never_retries_refused_configuration():
    with closing(SandboxPool(1, backend="jupyter:nope", idle_timeout=0.4, provider="local", preload=())) as pool:
        with pytest.raises(ConfigurationError, match=NO_KERNEL):
            pool.start()
        with pytest.raises(ConfigurationError, match=NO_KERNEL):
            pool.acquire(timeout=20)
        failed = pool.stats.failed
        # Several periods of the pool's health check.
        time.sleep(1)
        assert pool.stats.failed == failed == 2


def test_pool_raises_for_all_waiting_acquires():
    async def main():
        with closing(SandboxPool(1, backend="jupyter:nope", provider="local", preload=())) as pool:
            waiting = [asyncio.create_task(pool.acquire_async(timeout=30)) for _ in range(5)]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(error) for error in found} == {ConfigurationError}
            assert pool.stats.failed == 1

    asyncio.run(main())


def test_vector_collect_and_grader_refuse_missing_backend(tmp_path):
    options = {"provider": "local", "preload": (), "backend": "jupyter:nope"}
    envs = gym.make_vec("CodingEnv-v0", num_envs=2, **options)
    with closing(envs), pytest.raises(ConfigurationError, match=NO_KERNEL):
        envs.reset()
    with pytest.raises(ConfigurationError, match=NO_KERNEL):
        collect("CodingEnv-v0", "random", 2, seed=1, path=tmp_path / "data", env_options=options)
    with pytest.raises(ConfigurationError, match=NO_KERNEL):
        Grader(**options).start()


def test_interpreter_refuses_missing_kernel_and_directory():
    with CodeInterpreter(provider="local", preload=()) as interpreter:
        with pytest.raises(ConfigurationError, match="'nope' kernel is not available"):
            interpreter.execute("1", language="nope")
        with pytest.raises(ConfigurationError, match="'nope' kernel is not available"):
            interpreter.contexts.create(language="nope")
        with pytest.raises(ConfigurationError, match="/no/such/directory"):
            interpreter.contexts.create(cwd="/no/such/directory")
        assert interpreter.execute("1").text == "1"
    with pytest.raises(ConfigurationError, match=NO_KERNEL):
        CodeInterpreter(provider="local", backend="jupyter:nope")


# Reset options


_INVALID_RESET_OPTIONS = [
    {"episode_id": 5},
    {"fles": {}},
    {"seed": 3},
    [1],
    {"files": ["a"]},
    {"files": {"a": 1}},
    {"files": {"a": "\ud800"}},
    *(
        {"files": {path: "x"}}
        for path in ("../x", "a/../../x", "..", "/x", "/home/user/x", "", ".", "nul\0", "\ud800", "x" * 256)
    ),
    {"files": {"a": "1", "a/b": "2"}},
    {"files": {"a/b/c": "2", "./a/b": "1"}},
]


def test_invalid_reset_options_cost_nothing(pool, resets):
    with gym.make("CodingEnv-v0", pool=pool, disable_env_checker=True) as env:
        env.reset(seed=1)
        env.step("x = 1")
        sent = len(resets)
        for options in _INVALID_RESET_OPTIONS:
            with pytest.raises(ConfigurationError):
                env.reset(seed=2, options=options)
        assert len(resets) == sent
        assert env.step("x")[0]["stdout"] == "1\n"
        assert env.unwrapped.np_random_seed == 1
        env.reset(options={"files": {"a/../b": "1", "c//d": b"\xff", "e/f": "", "e/g": ""}})
        assert env.step("import os; sorted(os.listdir())")[0]["stdout"] == "['b', 'c', 'e']\n"
