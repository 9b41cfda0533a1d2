"""Sandboxes that die, and environments that are closed, while answers are pending."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode

from coding_gym import SandboxPool
from coding_gym.errors import PoolClosedError
from tests.envs.first_come.answers import ENV, SLEEP, outputs, receive
from tests.support.environments import make_envs
from tests.support.running_server import gone_within
from tests.support.sandbox_faults import kill_sandbox, living_children
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually, promptly

# Faults


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_death_of_sandbox_ends_its_episodes_while_others_continue(mode, make_own):
    envs = make_own(4, sessions_per_sandbox=2, autoreset_mode=mode)
    envs.reset(seed=1)
    dead, alive = envs.envs[0].sandbox, envs.envs[2].sandbox
    envs.send([SLEEP.format(60)] * 2 + ["n = 0"] * 2)
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {server_of(dead).pid}"])
    answers = {}
    steps = 0
    with promptly():
        while len(answers) < 2:
            for index, answer in receive(envs).items():
                if index < 2:
                    answers[index] = answer
                else:
                    assert not answer[3]
                    steps += 1
                    envs.send(["n += 1"], [index])
        killer.wait()
    assert steps > 20
    for obs, reward, terminated, truncated, info in answers.values():
        assert (reward, terminated, truncated) == (0.0, False, True)
        final = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
        assert final["outcome"] == "infrastructure"
        assert obs["exit_code"] == (0 if mode is AutoresetMode.SAME_STEP else 255)
    # The next episode begins in another sandbox.
    envs.send(["1", "1"], [0, 1])
    again: set[int] = set()
    while len(again) < 2:
        for index, answer in receive(envs).items():
            assert not answer[3]
            again |= {index} & {0, 1}
    assert envs.envs[0].sandbox is envs.envs[1].sandbox is not dead
    assert envs.envs[2].sandbox is alive


def test_environment_dead_between_episodes_is_reset_in_new_sandbox(make_own):
    envs = make_own(2, sessions_per_sandbox=1)
    envs.reset()
    kill_sandbox(envs.envs[0].sandbox)
    envs.async_reset()
    assert not any(truncated for _, _, _, truncated, _ in receive(envs, min_ready=2).values())
    envs.send(["1", "2"])
    assert outputs(receive(envs, min_ready=2)) == {0: "1\n", 1: "2\n"}


def test_failed_reset_is_raised_once_for_each_environment():
    with SandboxPool(provider="local", preload=(), sessions=3) as pool, ExitStack() as stack:
        envs = make_envs(stack, 3, pool=pool, **ENV)
        envs.reset()
        pool.close()
        envs.async_reset()
        for left in (2, 1, 0):
            with pytest.raises(PoolClosedError) as caught:
                envs.recv(min_ready=1, timeout=60)
            assert any("the answer of environment" in note for note in caught.value.__notes__)
            assert envs.pending.size == left


# Closing


def env_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("coding_gym_env_")]


def test_close_cancels_pending_environments(make_own):
    before = set(env_threads())
    envs = make_own(3, sessions_per_sandbox=3)
    envs.reset()
    server = server_of(envs.envs[0].sandbox)
    envs.send([SLEEP.format(60), "while True: pass"], [0, 2])
    errors = []

    def wait():
        try:
            envs.recv(min_ready=2)
        except gym.error.ClosedEnvironmentError as error:
            errors.append(error)

    receiver = threading.Thread(target=wait)
    receiver.start()
    time.sleep(0.3)
    with promptly():
        envs.close()
    receiver.join(30)
    assert len(errors) == 1
    assert gone_within([server]) == []
    assert set(env_threads()) <= before
    for call in (envs.recv, lambda: envs.send(["1"] * 3), envs.async_reset):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
            call()


def test_close_returns_sessions_of_pending_environments_to_pool(roomy_pool, make):
    assert eventually(lambda: roomy_pool.stats.busy == 0)
    envs = make(2)
    envs.reset()
    envs.send([SLEEP.format(60)] * 2)
    with promptly():
        envs.close()
    assert roomy_pool.stats.busy == 0
    again = make(8)
    again.reset()
    assert again.step(["1"] * 8)[0]["stdout"] == ("1\n",) * 8


def test_close_during_async_reset_leaves_nothing(make_own):
    before = living_children()
    envs = make_own(4, sessions_per_sandbox=2)
    envs.async_reset()
    time.sleep(0.1)
    envs.close()
    assert eventually(lambda: living_children() <= before)


def test_process_exit_does_not_wait_for_pending_environments():
    script = """
        import coding_gym, gymnasium as gym, time
        envs = gym.make_vec("CodingEnv-v0", num_envs=2, provider="local", preload=(), screen=None, step_timeout=60)
        envs.reset()
        envs.send(["import time; time.sleep(60)"] * 2)
        time.sleep(0.2)
        print(envs.envs[0].sandbox.description, flush=True)
    """
    with promptly():
        ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=110)
        assert (ended.returncode, ended.stderr) == (0, "")
