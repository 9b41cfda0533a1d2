"""Invalid calls of ``send`` and ``recv`` are refused, and change nothing."""

from __future__ import annotations

import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.errors import ConcurrentUseError, ConfigurationError, InvalidActionError
from tests.envs.first_come.answers import NAP, SLEEP, outputs, receive
from tests.support.timing import eventually


def test_send_before_reset_is_refused(make):
    envs = make()
    with pytest.raises(gym.error.ResetNeeded):
        envs.send(["1", "2"])
    assert envs.pending.size == 0


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((["x = 2"] * 3,), InvalidActionError, "Expected 4 actions.*got 3"),
        ((["x = 2"] * 2, [1]), InvalidActionError, "Expected 1 actions.*got 2"),
        (("x=2;",), InvalidActionError, "single string"),
        (("x", [0]), InvalidActionError, "single string"),
        ((["x = 2", 5], [0, 1]), InvalidActionError, "source text"),
        ((["x = 2", "\ud800"], [0, 1]), InvalidActionError, "surrogates"),
        ((["x = 2"], [4]), ConfigurationError, r"ids of 0 to 3.*got \[4\]"),
        ((["x = 2"], [-1]), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"] * 2, [1, 1]), ConfigurationError, "different ids"),
        ((["x = 2"], [True]), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], ["0"]), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], "0"), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], [0.0]), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], [[0]]), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], np.array([0.0])), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], np.array(0)), ConfigurationError, "ids of 0 to 3"),
        ((["x = 2"], 0), ConfigurationError, "ids of 0 to 3"),
        (([], []), ConfigurationError, "at least one"),
    ],
)
def test_invalid_send_runs_nothing(envs, arguments, error, named):
    envs.step(["x = 1"] * 4)
    with pytest.raises(error, match=named):
        envs.send(*arguments)
    assert envs.pending.size == 0
    assert envs.step(["x"] * 4)[0]["stdout"] == ("1\n",) * 4


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"min_ready": 2}, ConfigurationError, "at most 1, the number of pending environments, got 2"),
        ({"min_ready": 0}, ConfigurationError, "min_ready"),
        ({"min_ready": None}, ConfigurationError, "min_ready"),
        ({"timeout": -1}, ConfigurationError, "timeout"),
        ({"timeout": "1"}, ConfigurationError, "timeout"),
        ({"timeout": float("nan")}, ConfigurationError, "timeout"),
    ],
)
def test_invalid_recv_keeps_answers(envs, options, error, named):
    envs.send(["7"], [2])
    with pytest.raises(error, match=named):
        envs.recv(**options)
    assert outputs(receive(envs)) == {2: "7\n"}


def test_recv_with_nothing_pending_is_refused(envs):
    with pytest.raises(gym.error.NoAsyncCallError, match=r"send\(\) or async_reset\(\) first"):
        envs.recv()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda envs: envs.step(["x = 2"] * 4), r"in step\(\), got 1, 2: .*min_ready=2"),
        (lambda envs: envs.reset(), r"in reset\(\)"),
        (lambda envs: envs.clone_states(), r"in clone_states\(\)"),
        (lambda envs: envs.restore_states([None] * 4), r"in restore_states\(\)"),
        (lambda envs: envs.call("exec", "true"), r"in call\(\)"),
        (lambda envs: envs.send(["x = 2", "x = 2"], [0, 2]), r"in send\(\), got 2, "),
        (lambda envs: envs.async_reset(), r"in async_reset\(\), got 1, 2, "),
    ],
)
def test_call_is_refused_while_environments_are_pending(envs, call, named):
    envs.step(["x = 1"] * 4)
    envs.send([f"{SLEEP.format(0.2)}; x"] * 2, [1, 2])
    with pytest.raises(gym.error.AlreadyPendingCallError, match=named):
        call(envs)
    # Also if the answers have arrived, but have not been received.
    assert eventually(lambda: len(envs._answers._arrived) == 2)
    with pytest.raises(gym.error.AlreadyPendingCallError, match=named):
        call(envs)
    assert outputs(receive(envs, min_ready=2)) == {1: "1\n", 2: "1\n"}
    assert envs.step(["x"] * 4)[0]["stdout"] == ("1\n",) * 4


def test_direct_call_of_pending_environment_is_refused(envs):
    envs.send([f"{NAP}; 1"], [0])
    time.sleep(0.2)
    with pytest.raises(ConcurrentUseError):
        envs.envs[0].step("2")
    assert outputs(receive(envs)) == {0: "1\n"}


def test_second_receiver_is_refused(envs):
    envs.send([NAP], [0])
    thread = threading.Thread(target=envs.recv)
    thread.start()
    time.sleep(0.1)
    with pytest.raises(ConcurrentUseError):
        envs.recv()
    thread.join(30)
    assert envs.pending.size == 0
