"""Containers that are killed, paused or removed from outside."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import docker.errors
import gymnasium as gym
import pytest
from docker.models.containers import Container

from coding_gym.errors import SandboxStartError
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.ownership import OwnerProcess
from tests.faults.episodes import SMALL, after, assert_infrastructure, assert_starts_over, shown
from tests.support.sandbox_faults import pause
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually, promptly

pytestmark = pytest.mark.docker

SLEEP = "import time; time.sleep(60)"
POLLING = """
import threading, time, tkinter
root = tkinter.Tk()
root.geometry("200x200+20+20")
root.configure(bg="red")
done = []
def poll():
    if done:
        root.after(300, lambda: root.configure(bg="blue"))
    else:
        root.after(50, poll)
threading.Thread(target=lambda: (time.sleep(1.5), done.append(1))).start()
poll()
root.mainloop()
print("end")
"""


@pytest.fixture(scope="module")
def shared(docker_engine):
    """Environment whose container tests kill and replace."""
    with contextlib.closing(gym.make("CodingEnv-v0", provider="docker", **SMALL).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    return with_mark(shared)


@pytest.fixture
def alone(make, docker_engine):
    """Environment that the test closes."""
    return with_mark(make(provider="docker"))


def with_mark(env):
    env.reset(seed=1)
    shown(env, "mark = 1; open('mark', 'w').close()")
    return env


@pytest.fixture
def strike_the_next_one(docker_engine):
    """Apply an action to the next sandbox container as soon as it runs."""
    old = {container.id for container, _ in our_containers(docker_engine)}
    threads = []

    def strike(action):
        def strike_it():
            for container, owner in our_containers(docker_engine):
                if owner == OwnerProcess.current() and container.id not in old and container.status == "running":
                    action(container)
                    return True
            return False

        threads.append(threading.Thread(target=eventually, args=(strike_it,)))
        threads[-1].start()

    yield strike
    for thread in threads:
        thread.join()


# Killed


@pytest.mark.parametrize(("action", "options"), [("kill", {}), ("remove", {"force": True})])
def test_container_gone_between_steps_truncates_episode(env, docker_engine, action, options):
    container = env.sandbox.container
    getattr(container, action)(**options)
    assert_infrastructure(env.step("1"))
    assert_infrastructure(env.step("1"))
    assert_starts_over(env)
    assert env.sandbox.container.id != container.id
    assert eventually(lambda: container.id not in {found.id for found, _ in our_containers(docker_engine)})


def test_container_killed_between_episodes_is_replaced(env):
    container = env.sandbox.container
    container.kill()
    assert_starts_over(env)
    assert env.sandbox.container.id != container.id


def test_container_killed_during_step_truncates_episode(env):
    killer = after(0.5, env.sandbox.container.kill)
    with promptly():
        assert_infrastructure(env.step(SLEEP))
    killer.join()
    assert_starts_over(env)


def test_vector_step_survives_container_kill_between_halves(make, docker_engine, monkeypatch):
    envs = make(provider="docker", num_envs=4, sessions_per_sandbox=2)
    envs.reset(seed=1)
    envs.step(["mark = 1"] * 4)
    first, third = envs.envs[0], envs.envs[2]
    dead, alive = first.sandbox.container.id, third.sandbox.container.id
    finish = first.finish_step

    def kill_and_finish():
        first.sandbox.container.kill()
        return finish()

    monkeypatch.setattr(first, "finish_step", kill_and_finish)
    observations, rewards, terminations, truncations, infos = envs.step([SLEEP] * 2 + ["mark"] * 2)
    monkeypatch.undo()
    assert list(infos["outcome"]) == ["infrastructure"] * 2 + ["ok"] * 2
    assert list(observations["exit_code"]) == [255, 255, 0, 0]
    assert list(truncations) == [True, True, False, False]
    assert not rewards.any()
    assert not terminations.any()
    observations, _, _, truncations, _ = envs.step(["'mark' in globals()"] * 4)
    assert not truncations.any()
    observations, *_ = envs.step(["'mark' in globals()"] * 4)
    assert observations["stdout"] == ("False\n", "False\n", "True\n", "True\n")
    assert first.sandbox.container.id == envs.envs[1].sandbox.container.id != dead
    assert third.sandbox.container.id == alive


def test_container_killed_during_reset_is_replaced(env):
    container = env.sandbox.container
    # Suspend the server, so that it cannot answer before it is killed.
    server_of(env.sandbox).suspend()
    env.begin_reset(seed=1)
    container.kill()
    with promptly():
        _, info = env.finish_reset()
    assert info["outcome"] == "ok"
    assert env.sandbox.container.id != container.id
    assert_starts_over(env)


def test_container_killed_during_start_raises(make, docker_engine, containers, strike_the_next_one):
    env = make(provider="docker")
    strike_the_next_one(Container.kill)
    with pytest.raises(SandboxStartError, match="ended before it was ready"):
        env.reset()
    assert eventually(lambda: not containers())
    assert_starts_over(env)


def test_container_killed_during_close_is_removed(alone, containers, caplog):
    def kill():
        with contextlib.suppress(docker.errors.APIError):
            container.kill()

    container = alone.sandbox.container
    killer = after(0, kill)
    alone.close()
    killer.join()
    assert eventually(lambda: not containers())
    assert not caplog.records


# Paused


def test_paused_containers_are_replaced(make, impatient, containers):
    def pause_before_step(env):
        pause(env.sandbox.container)
        with promptly(after=5):
            assert_infrastructure(env.step("1"))
        assert_starts_over(env)

    def pause_during_step(env):
        container = env.sandbox.container
        pauser = after(0.3, lambda: pause(container))
        with promptly():
            assert_infrastructure(env.step(SLEEP))
        pauser.join()
        assert_starts_over(env)

    def pause_between_episodes(env):
        pause(env.sandbox.container)
        assert_starts_over(env)

    cases = (pause_before_step, pause_during_step, pause_between_episodes)
    envs = make(provider="docker", num_envs=len(cases), sessions_per_sandbox=1, step_timeout=3)
    envs.reset(seed=1)
    envs.step(["mark = 1; open('mark', 'w').close()"] * len(cases))
    paused = containers()
    assert len(paused) == len(cases)
    with ThreadPoolExecutor(len(cases)) as threads:
        for result in [threads.submit(case, env) for case, env in zip(cases, envs.envs, strict=True)]:
            result.result()
    assert containers() == {env.sandbox.container.id for env in envs.envs}
    assert not containers() & paused


def test_briefly_paused_container_only_delays_step(env):
    pause(env.sandbox.container)
    resumer = after(1, env.sandbox.container.unpause)
    assert shown(env, "mark") == "1\n"
    resumer.join()


def test_pause_does_not_count_as_time_for_timers(make, docker_engine):
    # Without the pause, the timer would poll in time, and start another one.
    env = make(provider="docker", screen=(320, 240), mem="512m", render_mode="rgb_array")
    env.reset(seed=1)

    def pause_for_a_while():
        pause(env.sandbox.container)
        time.sleep(2.4)
        env.sandbox.container.unpause()

    pauser = after(1.2, pause_for_a_while)
    observation = env.step(POLLING)[0]
    pauser.join()
    assert (observation["stdout"], observation["stderr"]) == ("end\n", "")
    assert tuple(env.render()[100, 100]) == (0, 0, 255)


def test_container_paused_during_start_raises(make, docker_engine, containers, strike_the_next_one):
    env = make(provider="docker", start_timeout=2)
    strike_the_next_one(pause)
    with promptly(), pytest.raises(SandboxStartError):
        env.reset()
    assert eventually(lambda: not containers())


def test_paused_container_affects_only_its_environments(make, docker_engine, impatient, containers):
    envs = make(provider="docker", num_envs=4, sessions_per_sandbox=2, step_timeout=3)
    envs.reset(seed=1)
    envs.step(["mark = 1"] * 4)
    pause(envs.envs[0].sandbox.container)
    observations, _, _, truncations, infos = envs.step(["mark"] * 4)
    assert list(truncations) == [True, True, False, False]
    assert list(infos["outcome"]) == ["infrastructure"] * 2 + ["ok"] * 2
    assert observations["stdout"] == ("", "", "1\n", "1\n")
    assert not envs.step(["mark"] * 4)[3].any()
    observations, *_ = envs.step(["'mark' in globals()"] * 4)
    assert observations["stdout"] == ("False\n", "False\n", "True\n", "True\n")
    assert eventually(lambda: len(containers()) == 2)


def test_paused_container_is_closed_at_once(alone, containers):
    pause(alone.sandbox.container)
    with promptly():
        alone.close()
    assert eventually(lambda: not containers())
