"""``CodingTask-v0`` with tasks of repositories: the agent works in a session of the task's image."""

from __future__ import annotations

import contextlib
from pathlib import Path

import gymnasium as gym
import pytest

from coding_gym import SandboxPool
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import RepositoryCommand, RepositoryTests, Task, TaskSuite
from tests.support.built_images import removed_afterwards

pytestmark = pytest.mark.docker

DOCKERFILE = """
FROM debian:trixie-slim
RUN useradd --create-home agent && install --directory --owner agent /work && install --directory /work/hidden \\
    && echo {answer} > /work/hidden/expected
WORKDIR /work
USER agent
"""
BEAT = "(while true; do echo > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 &"
BEATS = "rm -f /tmp/beat; for i in $(seq 60); do test -e /tmp/beat && exit; sleep 0.05; done; exit 1"
CHECK = "test $(cat answer) = $(cat hidden/expected)"


@pytest.fixture(scope="module")
def suite(docker_engine, tmp_path_factory):
    """Two tasks with different images, and one in the session."""
    tasks = []
    for answer in ("one", "two"):
        directory = tmp_path_factory.mktemp(answer)
        (directory / "Dockerfile").write_text(DOCKERFILE.format(answer=answer))
        command = RepositoryCommand(command=CHECK, results="exit code", timeout=60)
        tests = RepositoryTests(image=str(directory), commands=(command,), hidden=("hidden",), submission="script")
        tasks.append(Task(id=answer, prompt=f"Write {answer}.", tests=tests, grading="copy"))
    running = RepositoryTests(
        image=tasks[0].image,
        commands=(RepositoryCommand(command=BEATS, results="exit code", timeout=60),),
        submission="script",
    )
    tasks.append(Task(id="running", prompt="Leave a process running.", tests=running))
    with removed_afterwards(docker_engine, *{Path(task.image) for task in tasks}):
        yield TaskSuite("answers", tasks)


@pytest.fixture(scope="module", params=["bash", "python"])
def env(suite, request):
    options = {"provider": "docker", "screen": None, "suite": suite, "max_turns": 4, "preload": ()}
    with contextlib.closing(gym.make("CodingTask-v0", backend=request.param, **options).unwrapped) as env:
        yield env


def shell(env, command):
    return command if env.settings.backend == "bash" else f"import os; status = os.system({command!r})"


def test_agent_submits_changes(env):
    obs, info = env.reset(seed=0, options={"task_id": "one"})
    assert obs["prompt"] == "Write one.\n\nThe action 'submit' submits your changes."
    obs, reward, terminated, truncated, info = env.step(shell(env, "id -un; ls -A; echo wrong > answer"))
    assert (obs["stdout"], reward, info["graded"]) == ("agent\n", 0.0, False)
    obs, reward, terminated, truncated, info = env.step(" submit\n")
    assert (reward, terminated, truncated, info["graded"], info["solved"]) == (0.0, True, False, True, False)
    assert (obs["stdout"], obs["exit_code"], info["tests_passed"]) == ("", 0, 0)
    env.reset(seed=0, options={"task_id": "one"})
    # What tests hide is not there, and nothing of the last episode.
    obs, *_ = env.step(shell(env, "cat answer; ls hidden; echo one > answer"))
    assert obs["stdout"] == ""
    obs, reward, terminated, truncated, info = env.step("submit")
    assert (reward, terminated, truncated, info["solved"], info["tests_total"]) == (1.0, True, False, True, 1)
    assert (env.last_verdict.mode, env.last_verdict.tamper_resistant) == ("copy", False)


def test_last_turn_is_graded(env):
    env.reset(seed=0, options={"task_id": "two"})
    for _ in range(3):
        *_, info = env.step(shell(env, "echo two > answer"))
        assert not info["graded"]
    _, reward, terminated, truncated, info = env.step(shell(env, "true"))
    assert (reward, terminated, truncated, info["graded"]) == (1.0, True, False, True)


def test_session_ends_with_its_tests(env):
    env.reset(seed=0, options={"task_id": "running"})
    env.step(shell(env, BEAT))
    _, reward, terminated, _, info = env.step("submit")
    assert (reward, terminated, env.last_verdict.mode) == (1.0, True, "session")
    env.reset(seed=0, options={"task_id": "running"})
    _, reward, terminated, _, info = env.step("submit")
    assert (reward, terminated, info["solved"]) == (0.0, True, False)


def test_many_at_once(suite):
    with contextlib.closing(
        gym.make_vec("CodingTask-v0", num_envs=4, provider="docker", screen=None, suite=suite, backend="bash", preload=())
    ) as envs:
        _, infos = envs.reset(seed=[0, 1, 2, 5])
        tasks = list(infos["task_id"])
        assert len(set(tasks)) > 1
        actions = {"one": "echo one > answer", "two": "echo two > answer", "running": BEAT}
        envs.step([actions[task] for task in tasks])
        _, rewards, terminations, _, infos = envs.step(["submit"] * 4)
        assert (rewards.tolist(), terminations.tolist()) == ([1.0] * 4, [True] * 4)
        envs.step(["submit"] * 4)


def test_pool_keeps_images(suite):
    with SandboxPool(2, provider="docker", image=suite["one"].image, root=True, preload=()) as pool:
        with contextlib.closing(
            gym.make("CodingTask-v0", suite=suite, screen=None, pool=pool, backend="bash").unwrapped
        ) as env:
            for task_id in ("one", "two", "one", "two"):
                env.reset(seed=0, options={"task_id": task_id})
                env.step(f"echo {task_id} > answer")
                assert env.step("submit")[1] == 1.0
        # Two of the first image when the pool began, one of which has made way for the other one.
        assert (pool.stats.started, pool.stats.recycled, pool.stats.sandboxes) == (3, 1, 2)


def test_what_repositories_require(suite):
    with pytest.raises(ConfigurationError, match="RepositoryTests require provider='docker'"):
        gym.make("CodingTask-v0", suite=suite, provider="local")
    needing = RepositoryTests(image="any", commands=(RepositoryCommand(command="true"),), network=True)
    with pytest.raises(ConfigurationError, match="need a network"):
        gym.make("CodingTask-v0", suite=TaskSuite("s", [Task(id="a", prompt="", tests=needing)]), provider="docker")
