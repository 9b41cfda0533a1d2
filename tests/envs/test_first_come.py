from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, closing, suppress

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, VectorWrapper
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from coding_gym import SandboxPool
from coding_gym.errors import (
    CodingGymError,
    ConcurrentUseError,
    ConfigurationError,
    InvalidActionError,
    PoolClosedError,
    ReceiveTimeoutError,
)
from tests.support.interruption import interrupted_after
from tests.support.running_server import gone_within
from tests.support.sandbox_faults import eventually, kill_sandbox, living_children
from tests.support.sandbox_processes import server_of

ENV = {"screen": None, "step_timeout": 20}
FAST = {"provider": "local", "preload": (), **ENV}
SLEEP = "import time; time.sleep({})"
NAP = SLEEP.format(0.5)


@pytest.fixture(scope="module")
def shared():
    """Four environments in one sandbox."""
    with closing(gym.make_vec("CodingEnv-v0", num_envs=4, **FAST)) as envs:
        yield envs


@pytest.fixture
def envs(shared):
    """Four environments in new episodes; the test may leave some of them pending."""
    shared.reset(seed=1)
    yield shared
    while shared.pending.size:
        with suppress(CodingGymError):
            shared.recv(min_ready=shared.pending.size)


@pytest.fixture(scope="module")
def roomy_pool():
    with SandboxPool(provider="local", preload=(), sessions=8, max_episodes=None, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def make(roomy_pool):
    """Make environments in the shared pool."""
    with ExitStack() as stack:
        yield functools.partial(_make, stack, **{**ENV, "pool": roomy_pool})


@pytest.fixture
def make_own():
    """Make environments with dedicated sandboxes."""
    with ExitStack() as stack:
        yield functools.partial(_make, stack, **FAST)


def _make(stack, num_envs=2, *, id="CodingEnv-v0", **options):
    return stack.enter_context(closing(gym.make_vec(id, num_envs=num_envs, **options)))


def receive(envs, min_ready=1, timeout=30):
    """Return the answers by environment: observation, reward, terminated, truncated, info."""
    observations, rewards, terminations, truncations, infos = envs.recv(min_ready=min_ready, timeout=timeout)
    ids = infos["env_id"].tolist()
    assert infos["_env_id"].all()
    assert ids == sorted(ids)
    assert len(ids) >= min_ready
    return {
        index: (row_of(observations, row), rewards[row], terminations[row], truncations[row], info_of(infos, row))
        for row, index in enumerate(ids)
    }


def row_of(observations, row):
    return {key: values[row] for key, values in observations.items()}


def info_of(infos, row):
    """Return the info of one environment, without its id."""
    return {
        key: info_of(values, row) if isinstance(values, dict) else values[row]
        for key, values in infos.items()
        if not key.startswith("_") and key != "env_id" and infos[f"_{key}"][row]
    }


def outputs(answers):
    return {index: obs["stdout"] for index, (obs, *_) in answers.items()}


def assert_equal(ours, theirs, context):
    assert data_equivalence(ours, theirs), f"{context}:\n{ours}\n{theirs}"


def without_ids(batch):
    *arrays, infos = batch
    return (*arrays, {key: value for key, value in infos.items() if key not in ("env_id", "_env_id")})


# Equality with lock-step


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("screen", [pytest.param((32, 24), marks=pytest.mark.screen), None])
def test_receiving_all_equals_step(mode, screen, make):
    options = {"screen": screen, "max_episode_steps": 3, "autoreset_mode": mode}
    ours, theirs = make(3, **options), make(3, **options)
    ours.async_reset(seed=[5, None, 7], options={"files": {"a": "1"}})
    observations, *_, infos = without_ids(ours.recv(min_ready=3))
    expected = theirs.reset(seed=[5, None, 7], options={"files": {"a": "1"}})
    assert_equal((observations, infos), expected, "reset")
    for number in range(8):
        actions = [f"import random; print({number}, random.random(), open('a').read())", "1 / 0", "'é' * 3"]
        ours.send(actions)
        mine, other = without_ids(ours.recv(min_ready=3)), theirs.step(actions)
        assert_equal(mine, other, f"step {number}")
        assert [array.dtype for array in mine[1:4]] == [array.dtype for array in other[1:4]]
        assert mine[0] in ours.observation_space
        if mode is AutoresetMode.DISABLED and mine[3].any():
            ours.async_reset(seed=number, options={"files": {"a": "2"}})
            observations, *_, infos = without_ids(ours.recv(min_ready=3))
            assert_equal((observations, infos), theirs.reset(seed=number, options={"files": {"a": "2"}}), "reset")
    # The two ways can alternate.
    if mode is not AutoresetMode.DISABLED:
        assert_equal(ours.step(["1", "2", "3"]), theirs.step(["1", "2", "3"]), "step")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_each_environment_answers_as_in_lock_step(mode, make):
    options = {"max_episode_steps": 2, "autoreset_mode": mode}
    ours, theirs = make(3, **options), make(3, **options)
    codes = [f"{pause}; import random; random.random(), {index}" for index, pause in enumerate(("1", SLEEP.format(0.1), "2"))]
    steps = 6

    expected = {index: [] for index in range(3)}
    theirs.reset(seed=9)
    for _ in range(steps):
        observations, *arrays, infos = theirs.step(codes)
        for index, answers in expected.items():
            answers.append((row_of(observations, index), *(array[index] for array in arrays), info_of(infos, index)))
        if mode is AutoresetMode.DISABLED and arrays[-1].any():
            theirs.reset()

    ours.async_reset(seed=9)
    resetting = {0, 1, 2}
    received = {index: [] for index in range(3)}
    while received[0] == [] or len(received[1]) < steps:
        for index, answer in receive(ours).items():
            if index in resetting:
                resetting.remove(index)
            else:
                received[index].append(answer)
            if len(received[index]) == steps:
                # None of the others waits for the slow one.
                assert index == 1 or len(received[1]) < 4
            elif mode is AutoresetMode.DISABLED and answer[3] and index not in resetting:
                ours.async_reset(options={"reset_mask": np.arange(3) == index})
                resetting.add(index)
            else:
                ours.send([codes[index]], [index])
    assert_equal(received, expected, "steps")


def test_observations_of_some_are_batched(make):
    envs = make(3)
    envs.reset(seed=1)
    envs.send(["import sys; sys.exit(3)", "print('\N{SNOWMAN} \N{PILE OF POO}')"], np.array([2, 0]))
    observations, rewards, terminations, truncations, infos = envs.recv(min_ready=2, timeout=30)
    assert observations["stdout"] == ("\N{SNOWMAN} \N{PILE OF POO}\n", "")
    assert observations["exit_code"].tolist() == [0, 3]
    assert observations["exit_code"].dtype == np.int64
    assert [array.dtype for array in (rewards, terminations, truncations)] == [np.float64, np.bool_, np.bool_]
    assert {key: value.tolist() for key, value in infos.items()} == {
        "outcome": ["ok", "error"],
        "_outcome": [True, True],
        "state_lost": [False, False],
        "_state_lost": [True, True],
        "env_id": [0, 2],
        "_env_id": [True, True],
    }


@pytest.mark.screen
def test_screenshots_of_some_are_batched_and_never_shared(make):
    envs = make(3, screen=(32, 24), max_episode_steps=1, autoreset_mode="SameStep")
    envs.reset()
    for _ in range(2):
        envs.send(["1", "2"], [0, 2])
        observations, *_, infos = envs.recv(min_ready=2, timeout=30)
        assert observations["screenshot"].shape == (2, 24, 32, 3)
        assert [final["stdout"] for final in infos["final_obs"]] == ["1\n", "2\n"]
        for screenshot in (observations["screenshot"], *(final["screenshot"] for final in infos["final_obs"])):
            assert not screenshot.any()
            screenshot[:] = 9


def test_final_infos_have_a_row_for_each_answer(make):
    envs = make(4, max_episode_steps=2, autoreset_mode="SameStep")
    envs.reset()
    envs.send(["1"], [3])
    receive(envs)
    envs.send(["1", "2"], [1, 3])
    *_, infos = envs.recv(min_ready=2, timeout=30)
    assert infos["env_id"].tolist() == [1, 3]
    assert infos["_final_info"].tolist() == infos["_final_obs"].tolist() == [False, True]
    assert infos["final_info"]["outcome"].tolist() == [None, "ok"]
    assert infos["final_obs"][1]["stdout"] == "2\n"


# First come, first served


@pytest.mark.slow
def test_first_come_is_ten_times_as_fast_with_one_slow_program(make_own):
    envs = make_own(16, sessions_per_sandbox=16)
    envs.reset(seed=1)
    codes = [SLEEP.format(1), *["x = 1"] * 15]
    started = time.perf_counter()
    for _ in range(3):
        envs.step(codes)
    lock_step_rate = 3 * 16 / (time.perf_counter() - started)

    started = time.perf_counter()
    steps = 0
    envs.send(codes)
    while (seconds := time.perf_counter() - started) < 3:
        ids = list(receive(envs))
        steps += len(ids)
        envs.send([codes[index] for index in ids], ids)
    assert steps / seconds >= 10 * lock_step_rate


def test_endless_program_ends_by_its_own_limit_only(make):
    envs = make(3, step_timeout=1.5)
    envs.reset()
    envs.send(["n = 0"] * 2 + ["while True: pass"])
    received = {0: 0, 1: 0}
    started = time.perf_counter()
    while True:
        answers = receive(envs)
        if 2 in answers:
            break
        for index in answers:
            received[index] += 1
            envs.send(["n += 1; n"], [index])
    assert 1 < time.perf_counter() - started < 10
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


# Misuse


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
    thread.join(10)
    assert envs.pending.size == 0


# Timeouts


def test_timeout_loses_nothing(envs):
    envs.send(["0", f"{SLEEP.format(1)}; 1", "2"], [0, 1, 2])
    started = time.perf_counter()
    with pytest.raises(TimeoutError, match=r"Expected answers of 3 environments within 0.3 s, got 2: they are kept") as caught:
        envs.recv(min_ready=3, timeout=0.3)
    assert time.perf_counter() - started < 0.9
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


# Faults


@pytest.mark.lifecycle
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_death_of_sandbox_ends_its_episodes_while_others_go_on(mode, make_own):
    envs = make_own(4, sessions_per_sandbox=2, autoreset_mode=mode)
    envs.reset(seed=1)
    dead, alive = envs.envs[0].sandbox, envs.envs[2].sandbox
    envs.send([SLEEP.format(15)] * 2 + ["n = 0"] * 2)
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {server_of(dead).pid}"])
    answers = {}
    steps = 0
    started = time.perf_counter()
    while len(answers) < 2:
        for index, answer in receive(envs).items():
            if index < 2:
                answers[index] = answer
            else:
                assert not answer[3]
                steps += 1
                envs.send(["n += 1"], [index])
    killer.wait()
    assert time.perf_counter() - started < 10
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


@pytest.mark.lifecycle
def test_environment_dead_between_episodes_is_reset_in_new_sandbox(make_own):
    envs = make_own(2, sessions_per_sandbox=1)
    envs.reset()
    kill_sandbox(envs.envs[0].sandbox)
    envs.async_reset()
    assert not any(truncated for _, _, _, truncated, _ in receive(envs, min_ready=2).values())
    envs.send(["1", "2"])
    assert outputs(receive(envs, min_ready=2)) == {0: "1\n", 1: "2\n"}


@pytest.mark.lifecycle
def test_failed_reset_is_raised_once_for_each_environment():
    with SandboxPool(provider="local", preload=(), sessions=3) as pool, ExitStack() as stack:
        envs = _make(stack, 3, pool=pool, **ENV)
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


@pytest.mark.lifecycle
def test_close_cancels_pending_environments(make_own):
    before = set(env_threads())
    envs = make_own(3, sessions_per_sandbox=3)
    envs.reset()
    server = server_of(envs.envs[0].sandbox)
    envs.send([SLEEP.format(19), "while True: pass"], [0, 2])
    errors = []

    def wait():
        try:
            envs.recv(min_ready=2)
        except gym.error.ClosedEnvironmentError as error:
            errors.append(error)

    receiver = threading.Thread(target=wait)
    receiver.start()
    time.sleep(0.3)
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 8
    receiver.join(5)
    assert len(errors) == 1
    assert gone_within([server], 10) == []
    assert set(env_threads()) <= before
    for call in (envs.recv, lambda: envs.send(["1"] * 3), envs.async_reset):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
            call()


def test_close_returns_sessions_of_pending_environments_to_pool(roomy_pool, make):
    assert eventually(lambda: roomy_pool.busy == 0)
    envs = make(2)
    envs.reset()
    envs.send([SLEEP.format(19)] * 2)
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 4
    assert roomy_pool.busy == 0
    again = make(8)
    again.reset()
    assert again.step(["1"] * 8)[0]["stdout"] == ("1\n",) * 8


@pytest.mark.lifecycle
def test_close_during_async_reset_leaves_nothing(make_own):
    before = living_children()
    envs = make_own(4, sessions_per_sandbox=2)
    envs.async_reset()
    time.sleep(0.1)
    envs.close()
    assert eventually(lambda: living_children() <= before)


@pytest.mark.slow
@pytest.mark.lifecycle
def test_process_exit_does_not_wait_for_pending_environments():
    script = """
        import coding_gym, gymnasium as gym, time
        envs = gym.make_vec("CodingEnv-v0", num_envs=2, provider="local", preload=(), screen=None, step_timeout=50)
        envs.reset()
        envs.send(["import time; time.sleep(45)"] * 2)
        time.sleep(0.2)
        print(envs.envs[0].sandbox.description, flush=True)
    """
    started = time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=90)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert time.perf_counter() - started < 25


# Other environments and wrappers


class SendsBeforeItReceives(VectorWrapper):
    """Steps environments through ``send`` and ``recv`` of the innermost environment."""

    def step(self, actions):
        self.env.unwrapped.send([action.upper() for action in actions])
        return without_ids(self.env.unwrapped.recv(min_ready=self.num_envs))


def test_wrapper_can_send(make):
    envs = RecordEpisodeStatistics(SendsBeforeItReceives(make(2, max_episode_steps=2)))
    envs.reset()
    assert envs.step(["'a'", "'b'"])[0]["stdout"] == ("'A'\n", "'B'\n")
    infos = envs.step(["'a'", "'b'"])[4]
    assert infos["episode"]["l"].tolist() == [2, 2]


def test_wrappers_have_no_send(make):
    envs = RecordEpisodeStatistics(make(2))
    assert not hasattr(envs, "send")
    envs.reset()
    envs.unwrapped.send(["1"], [1])
    assert outputs(receive(envs.unwrapped)) == {1: "1\n"}


@pytest.mark.slow
def test_submissions_are_graded_first_come(make_own):
    envs = make_own(3, id="CodingTask-v0", suite="basics", sessions_per_sandbox=3, max_turns=2)
    envs.async_reset(seed=1, options={"task_id": "basics/add_up"})
    prompts = {index: obs["prompt"] for index, (obs, *_) in receive(envs, min_ready=3).items()}
    task = envs.envs[0].task
    assert prompts == dict.fromkeys(range(3), task.prompt)
    endless = f"def {task.entry_point}(*arguments):\n    while True: pass"
    envs.send([task.reference, endless, "1"])
    answers = {}
    while 2 not in answers or 0 not in answers:
        answers.update(receive(envs))
    assert 1 not in answers
    assert (answers[0][1], answers[0][2], answers[0][4]["solved"]) == (1.0, True, True)
    assert answers[0][0]["prompt"] == task.prompt
    assert not answers[2][4]["graded"]
    assert receive(envs, timeout=60)[1][4]["solved"] == np.False_
    # A pending submission does not delay the end either.
    envs.send([endless], [1])
    time.sleep(0.2)
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 8


def test_shell_environments(make_own):
    envs = make_own(2, id="CodingShellEnv-v0")
    envs.async_reset(seed=1)
    receive(envs, min_ready=2)
    envs.send(["sleep 0.5; echo slow", "echo fast"])
    assert outputs(receive(envs)) == {1: "fast\n"}
    assert outputs(receive(envs)) == {0: "slow\n"}
