"""``recv`` returns the answers in the order in which they arrive, and loses none."""

from __future__ import annotations

import threading
import time
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.errors import ConfigurationError, ReceiveTimeoutError
from tests.envs.first_come.answers import NAP, SLEEP, outputs, receive
from tests.support.interruption import interrupted_after
from tests.support.timing import eventually, promptly

# First come, first served


def test_one_slow_program_does_not_delay_the_others(make_own):
    envs = make_own(16, sessions_per_sandbox=16)
    envs.reset(seed=1)
    envs.send([SLEEP.format(60), *["x = 1"] * 15])
    steps = Counter()
    with promptly():
        # In lock step, each would wait for the slow program.
        while len(steps) < 15 or min(steps.values()) < 10:
            ids = list(receive(envs))
            steps.update(ids)
            envs.send(["x = 1"] * len(ids), ids)
    assert 0 not in steps


def test_endless_program_ends_by_its_own_limit_only(make):
    envs = make(3, step_timeout=3)
    envs.reset()
    envs.send(["n = 0"] * 2 + ["while True: pass"])
    received = {0: 0, 1: 0}
    with promptly(after=2):
        while 2 not in (answers := receive(envs)):
            for index in answers:
                received[index] += 1
                envs.send(["n += 1; n"], [index])
    assert answers[2][0]["exit_code"] == 124
    assert answers[2][4]["outcome"] == "timeout"
    assert not answers[2][3]
    assert min(received.values()) > 20
    envs.send(["1"], [2])
    while 2 not in (answers := receive(envs)):
        pass
    assert outputs(answers)[2] == "1\n"


def test_floods_are_bounded_and_reach_their_environments(envs):
    envs.send([f"print(str({index}) * 10**7)" for index in range(4)])
    answers = receive(envs, min_ready=4)
    for index, text in outputs(answers).items():
        assert len(text) < 10**6
        assert text.startswith(f"{index}" * 100)
        assert set(text[-100:].strip()) == {str(index)}


def test_recv_returns_all_that_have_arrived(envs):
    envs.send(["0", "1", "2", NAP])
    assert eventually(lambda: len(envs._answers._arrived) == 3)
    assert outputs(receive(envs, min_ready=1)) == {0: "0\n", 1: "1\n", 2: "2\n"}
    assert envs.pending.tolist() == [3]
    assert envs.pending.dtype == np.int64
    assert outputs(receive(envs)) == {3: ""}
    assert envs.pending.size == 0


def test_one_thread_sends_while_another_receives(envs):
    total = 200
    received = {index: [] for index in range(4)}
    free = threading.Semaphore(0)

    def receive_all():
        while sum(map(len, received.values())) < total:
            try:
                answers = outputs(receive(envs))
            except gym.error.NoAsyncCallError:
                # The sender is behind.
                time.sleep(0.001)
                continue
            for index, text in answers.items():
                received[index].append(text)
                idle.append(index)
                free.release()

    idle = []
    envs.send(["0"] * 4)
    thread = threading.Thread(target=receive_all)
    thread.start()
    for number in range(1, total - 3):
        assert free.acquire(timeout=30)
        envs.send([str(number)], [idle.pop(0)])
    thread.join(30)
    assert not thread.is_alive()
    assert sorted(int(text) for texts in received.values() for text in texts) == [0] * 4 + list(range(1, total - 3))
    assert all([int(text) for text in texts] == sorted(map(int, texts)) for texts in received.values())


# Resets


def test_async_reset_returns_first_observations(make_own):
    envs = make_own(4, sessions_per_sandbox=2)
    envs.async_reset(seed=7)
    assert envs.pending.tolist() == [0, 1, 2, 3]
    received = {}
    while len(received) < 4:
        received.update(receive(envs))
    for obs, reward, terminated, truncated, info in received.values():
        assert (obs["stdout"], reward, terminated, truncated) == ("", 0.0, False, False)
        assert info == {"outcome": "ok", "state_lost": False}
    code = ["import random; random.random()"] * 4
    envs.send(code)
    drawn = [text for _, text in sorted(outputs(receive(envs, min_ready=4)).items())]
    envs.reset(seed=7)
    assert list(envs.step(code)[0]["stdout"]) == drawn
    assert len(set(drawn)) == 4


def test_some_are_reset_while_others_are_pending(envs):
    envs.step(["x = 1"] * 4)
    envs.send([f"{NAP}; x"], [0])
    envs.async_reset(seed=[1, 2, 3, 4], options={"reset_mask": np.array([False, True, False, True])})
    assert envs.pending.tolist() == [0, 1, 3]
    assert outputs(receive(envs, min_ready=3)) == {0: "1\n", 1: "", 3: ""}
    envs.send(["'x' in globals()"] * 4)
    assert outputs(receive(envs, min_ready=4)) == {0: "True\n", 1: "False\n", 2: "True\n", 3: "False\n"}


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"options": {"reset_mask": np.ones(3, bool)}}, ConfigurationError, "reset_mask"),
        ({"options": {"reset_mask": [True] * 4}}, TypeError, "reset_mask"),
        ({"options": {"file": {}}}, ConfigurationError, "files"),
        ({"options": {"files": {"../a": ""}}}, ConfigurationError, "a"),
        ({"seed": [1, 2]}, ConfigurationError, "seeds"),
    ],
)
def test_invalid_reset_is_refused_at_once(envs, options, error, named):
    envs.step(["x = 1"] * 4)
    with pytest.raises(error, match=named):
        envs.async_reset(**options)
    assert envs.pending.size == 0
    assert envs.step(["x"] * 4)[0]["stdout"] == ("1\n",) * 4


def test_ended_episode_without_autoreset_is_named(make):
    envs = make(2, max_episode_steps=1, autoreset_mode="Disabled")
    envs.reset()
    envs.send(["1"], [1])
    receive(envs)
    with pytest.raises(gym.error.ResetNeeded, match=r"environments 1 have ended.*async_reset"):
        envs.send(["1", "1"])
    assert envs.pending.size == 0


# Timeouts


def test_timeout_loses_nothing(envs):
    envs.send(["0", f"{SLEEP.format(3)}; 1", "2"], [0, 1, 2])
    with pytest.raises(TimeoutError, match=r"Expected answers of 3 environments within 1 s, got 2: they are kept") as caught:
        envs.recv(min_ready=3, timeout=1)
    assert isinstance(caught.value, ReceiveTimeoutError)
    assert (caught.value.min_ready, caught.value.arrived) == (3, 2)
    assert envs.pending.tolist() == [0, 1, 2]
    assert outputs(receive(envs, timeout=0)) == {0: "0\n", 2: "2\n"}
    with pytest.raises(ReceiveTimeoutError, match="got 0"):
        envs.recv(timeout=0)
    assert outputs(receive(envs, timeout=float("inf"))) == {1: "1\n"}


@pytest.mark.parametrize("delay", [0.0005, 0.002, 0.02, 0.3])
def test_ctrl_c_in_recv_loses_nothing(envs, delay):
    envs.send([f"{NAP}; {index}" for index in range(4)])
    assert interrupted_after(delay, lambda: (envs.recv(min_ready=4), time.sleep(5)))
    assert outputs(receive(envs, min_ready=4)) == {index: f"{index}\n" for index in range(4)}


@pytest.mark.parametrize("delay", [0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.002])
def test_ctrl_c_in_send_leaves_no_endless_wait(envs, delay):
    interrupted_after(delay, lambda: (envs.send(["x = 1"] * 4), time.sleep(5)))
    # Those to which an action was sent answer.
    time.sleep(0.2)
    while envs.pending.size:
        envs.recv(min_ready=len(envs.pending), timeout=20)
    assert envs.step(["2"] * 4)[0]["stdout"] == ("2\n",) * 4
