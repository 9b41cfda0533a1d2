"""Environments answer ``recv`` as they answer ``step``, also those of other kinds and in wrappers."""

from __future__ import annotations

import time

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorWrapper
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from tests.envs.first_come.answers import SLEEP, assert_equal, info_of, outputs, receive, row_of, without_ids
from tests.support.timing import promptly

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
        observations["screenshot"][:] = 9


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
    with promptly():
        envs.close()


def test_shell_environments(make_own):
    envs = make_own(2, id="CodingShellEnv-v0")
    envs.async_reset(seed=1)
    receive(envs, min_ready=2)
    envs.send(["sleep 0.5; echo slow", "echo fast"])
    assert outputs(receive(envs)) == {1: "fast\n"}
    assert outputs(receive(envs)) == {0: "slow\n"}
