"""A pool over servers that run already: real ``coding-gym serve`` processes."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import gymnasium as gym
import httpx
import pytest
from typer.testing import CliRunner

from coding_gym import AsyncCodingEnv, CodingEnv, SandboxPool
from coding_gym.cli.main import app
from coding_gym.datasets import collect, load, replay
from coding_gym.errors import ConfigurationError, PoolTimeoutError, ProtocolError, TransportError
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite
from tests.cli.conftest import Served
from tests.support.timing import eventually

TOKEN = "secret"
ENV = {"screen": None, "step_timeout": 60}
TASK = Task(
    id="double",
    prompt="Double it.",
    entry_point="double",
    prefix="",
    tests=Asserts(cases=("assert double(1) == 2",)),
    reference="def double(x):\n    return 2 * x\n",
)
UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def serve(tmp_path_factory) -> Iterator[Callable[..., Served]]:
    """Start a server; all are stopped at the end."""
    started: list[Served] = []

    def start(sessions: int, port: int = 0) -> Served:
        arguments = ("--port", str(port), "--sessions", str(sessions), "--option", "idle_timeout=2")
        started.append(Served(tmp_path_factory.mktemp("serve"), *arguments, token=TOKEN))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.stop()


@pytest.fixture(scope="module")
def servers(serve) -> list[str]:
    return [serve(2).url, serve(6).url]


def pool_of(urls, **options) -> SandboxPool:
    return SandboxPool(provider="remote", base_urls=urls, token=TOKEN, **options)


def sessions_of(url: str) -> int:
    """Return the number of open sessions, without the relay's."""
    return httpx.get(f"{url}/health").json()["active_sessions"] - 1


def unused(urls) -> bool:
    return eventually(lambda: not any(map(sessions_of, urls)))


def test_leases_are_spread_by_free_share(servers):
    assert unused(servers)
    with pool_of(servers) as pool, ExitStack() as leases:
        assert pool.capacity == 8
        taken = [leases.enter_context(pool.acquire()).sandbox.address.url for _ in range(4)]
        assert Counter(taken) == {servers[0]: 1, servers[1]: 3}
        for _ in range(4):
            leases.enter_context(pool.acquire())
        assert (pool.stats.busy, pool.stats.idle, pool.stats.sandboxes) == (8, 0, 2)
        with pytest.raises(PoolTimeoutError):
            pool.acquire(timeout=0.1)


def test_many_threads_and_vector_environments_leave_no_session_behind(servers):
    assert unused(servers)
    with pool_of(servers) as pool:

        def episode(number: int) -> str:
            with closing(CodingEnv(pool=pool, **ENV)) as env:
                env.reset(seed=number)
                return env.step(f"print({number})")[0]["stdout"]

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(episode, range(24))) == [f"{number}\n" for number in range(24)]
        assert unused(servers)
        envs = gym.make_vec("coding_gym:CodingEnv-v0", num_envs=4, pool=pool, **ENV)
        envs.reset(seed=1)
        assert envs.step(["print(1)"] * 4)[0]["stdout"] == ("1\n",) * 4
        envs.close()
    assert unused(servers)


def test_vector_environment_and_grader_make_a_pool_of_their_own(servers):
    assert unused(servers)
    options = {"provider": "remote", "base_urls": servers, "token": TOKEN}
    envs = gym.make_vec("coding_gym:CodingEnv-v0", num_envs=6, **options, **ENV)
    envs.reset(seed=1)
    assert envs.step(["print(1)"] * 6)[0]["stdout"] == ("1\n",) * 6
    assert all(map(sessions_of, servers))
    envs.close()
    assert unused(servers)
    with pytest.raises(ConfigurationError, match="exceeds the 8 sessions"):
        gym.make_vec("coding_gym:CodingEnv-v0", num_envs=9, **options, **ENV)
    with Grader(workers=4, **options) as grader:
        assert grader.workers == 4
        assert [verdict.solved for verdict in grader.grade_many([(TASK, TASK.reference)] * 8, regrade=True)] == [True] * 8
    assert unused(servers)


def test_episodes_are_collected_on_all_servers(servers, tmp_path):
    assert unused(servers)
    with pool_of(servers) as pool:
        options = {"screen": None}
        dataset = collect("CodingEnv-v0", ["1", "2"], 12, seed=1, path=tmp_path, pool=pool, env_options=options, progress=False)
        assert (len(dataset), dataset.faults, pool.stats.failed) == (12, 0, 0)
        assert pool.stats.episodes >= 12
    assert unused(servers)


def test_vector_environment_of_tasks_takes_two_sessions_each(servers):
    assert unused(servers)
    options = {"base_urls": servers, "provider": "remote", "token": TOKEN, "suite": TaskSuite("doubling", [TASK]), **ENV}
    with pytest.raises(ConfigurationError, match=r"num_envs=5 exceeds the 8 sessions .*: each environment takes 2"):
        gym.make_vec("CodingTask-v0", num_envs=5, **options)
    with closing(gym.make_vec("CodingTask-v0", num_envs=4, **options)) as envs:
        for seed in range(3):
            envs.reset(seed=seed)
            _, rewards, terminations, _, infos = envs.step([TASK.reference] * 3 + ["def double(x): return 0"])
            assert (rewards.tolist(), terminations.tolist()) == ([1.0] * 3 + [0.0], [True] * 3 + [False])
            assert infos["graded"].all()
        # All sessions are in use: four of agents, and four that grade.
        assert sum(map(sessions_of, servers)) == 8
    assert unused(servers)


def test_collection_is_limited_to_sessions_of_servers(servers, tmp_path):
    assert unused(servers)
    options = {"provider": "remote", "base_urls": servers, "token": TOKEN, "screen": None}
    dataset = collect("CodingEnv-v0", ["1"], 20, seed=1, path=tmp_path / "a", env_options=options, progress=False)
    assert (len(dataset), dataset.faults, dataset.manifest.runs[0].sessions) == (20, 0, 8)
    assert replay(dataset, env_options={"token": TOKEN}, progress=False) == []
    # Servers end sessions a moment after their clients.
    assert unused(servers)
    # A second session of each grades the submissions.
    options = {**options, "suite": "basics"}
    dataset = collect("CodingTask-v0", ["x = 1"], 10, seed=1, path=tmp_path / "b", env_options=options, progress=False)
    assert (len(dataset), dataset.faults, dataset.manifest.runs[0].sessions) == (10, 0, 4)
    assert unused(servers)


def test_collect_command_is_limited_to_sessions_of_servers(servers, tmp_path, monkeypatch):
    assert unused(servers)
    monkeypatch.setenv("CODING_GYM_TOKEN", TOKEN)
    options = ["provider=remote", f"base_urls={json.dumps(servers)}", "screen=null"]
    command = ["collect", "--out", str(tmp_path / "a"), "--episodes", "20", "--max-steps", "1"]
    ran = CliRunner().invoke(app, [*command, *(argument for option in options for argument in ("--option", option))])
    assert ran.exit_code == 0, ran.output
    dataset = load(tmp_path / "a")
    assert (len(dataset), dataset.faults, dataset.manifest.runs[0].sessions) == (20, 0, 8)


def test_full_server_is_waited_for(servers):
    assert unused(servers)
    with pool_of(servers[:1], acquire_timeout=30) as pool, ExitStack() as others:
        for _ in range(2):
            other = CodingEnv(provider="remote", base_url=servers[0], token=TOKEN, **ENV)
            others.callback(other.close)
            other.reset()
        with ThreadPoolExecutor(1) as thread, closing(CodingEnv(pool=pool, **ENV)) as env:
            waiting = thread.submit(env.reset)
            assert eventually(lambda: pool.stats.waiting == 1)
            time.sleep(3)
            assert not waiting.done()
            others.close()
            waiting.result(20)

    async def wait_in_vain() -> None:
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.reset()

    assert unused(servers)
    with pool_of(servers[:1], acquire_timeout=1) as pool, ExitStack() as others:
        for _ in range(2):
            other = others.enter_context(closing(CodingEnv(provider="remote", base_url=servers[0], token=TOKEN, **ENV)))
            other.reset()
        with pytest.raises(PoolTimeoutError):
            asyncio.run(wait_in_vain())


def test_grader_waits_for_a_full_server(servers):
    assert unused(servers)
    with pool_of(servers[:1], acquire_timeout=30) as pool, Grader(pool=pool, retries=0) as grader, ExitStack() as others:
        for _ in range(2):
            other = CodingEnv(provider="remote", base_url=servers[0], token=TOKEN, **ENV)
            others.callback(other.close)
            other.reset()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(grader.grade, TASK, TASK.reference)
            assert eventually(lambda: pool.stats.waiting == 1)
            others.close()
            assert waiting.result(20).solved


def test_killed_server_is_left_out_until_it_returns(serve, servers):
    doomed = serve(6)
    port = int(doomed.url.rpartition(":")[2])
    assert unused(servers)
    with pool_of([doomed.url, servers[0]], acquire_timeout=20) as pool:
        with ExitStack() as stack:
            envs = [stack.enter_context(closing(CodingEnv(pool=pool, **ENV))) for _ in range(4)]
            for env in envs:
                env.reset()
            lost = [env.sandbox.address.url == doomed.url for env in envs]
            assert sum(lost) == 3
            doomed.stop(signal.SIGKILL)
            for env, is_lost in zip(envs, lost, strict=True):
                _, _, _, truncated, info = env.step("print(1)")
                assert (truncated, info["outcome"] == "infrastructure") == (is_lost, is_lost)
        with closing(CodingEnv(pool=pool, **ENV)) as env:
            env.reset()
            assert env.sandbox.address.url == servers[0]
        serve(6, port)
        assert eventually(lambda: pool.stats.sandboxes == 2, 60)
        assert pool.capacity > 2
        # It has more free slots than the other one.
        with pool.acquire() as lease:
            assert lease.sandbox.address.url == doomed.url


def test_server_that_is_unreachable_at_the_start_is_left_out(servers, caplog):
    with pool_of([UNREACHABLE, servers[0]]) as pool:
        assert pool.stats.sandboxes == 1
        with pool.acquire() as lease:
            assert lease.sandbox.address.url == servers[0]
    assert [record.message for record in caplog.records if "cannot use the server at" in record.message]


def test_pool_without_a_reachable_server_says_so():
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:9"), pool_of([UNREACHABLE]):
        pass
    with (
        closing(pool_of([UNREACHABLE])) as pool,
        pytest.raises(PoolTimeoutError, match=r"cannot be used: http://127\.0\.0\.1:9"),
    ):
        pool.acquire(timeout=1)


def test_wrong_token_is_refused(servers):
    with pytest.raises(ProtocolError), SandboxPool(provider="remote", base_urls=servers, token="wrong"):
        pass
    with (
        closing(SandboxPool(provider="remote", base_urls=servers, token="wrong")) as pool,
        pytest.raises(ProtocolError),
    ):
        pool.acquire(timeout=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "remote"}, "base_urls= with several"),
        ({"provider": "remote", "base_urls": []}, r"base_urls= to be a list of addresses of running servers, got \[\]"),
        ({"provider": "local", "base_urls": []}, r"base_urls= to be a list of addresses of running servers, got \[\]"),
        ({"provider": "local", "base_urls": ["a:1"]}, "only valid with provider='remote'"),
        ({"provider": "remote", "base_urls": ["a:1", "http://a:1/"]}, "each server once"),
        ({"provider": "remote", "base_urls": ["a:1"], "base_url": "a:1"}, "cannot be combined with base_url="),
        ({"provider": "remote", "base_urls": "a:1"}, "a list of addresses"),
        ({"provider": "remote", "base_urls": ["a:1", "b:1"], "size": 3}, "does not fit the 2 servers"),
    ],
)
def test_invalid_servers_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        SandboxPool(**options)


def test_single_environment_does_not_accept_servers_of_a_pool():
    with (
        closing(CodingEnv(provider="remote", base_urls=["a:1"], **ENV)) as env,
        pytest.raises(ConfigurationError, match="pass them to SandboxPool"),
    ):
        env.reset()
