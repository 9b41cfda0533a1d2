"""Wrappers keep their state when the environment continues from a snapshot."""

from __future__ import annotations

import copy
import threading
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import RecordConstructorArgs
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import (
    Autoreset,
    DelayObservation,
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    StickyAction,
    TimeAwareObservation,
    TimeLimit,
    TransformReward,
)

from coding_gym import branching, wrappers
from coding_gym.errors import ConfigurationError, SnapshotError
from coding_gym.wrappers import terms
from tests.support.lock import CombinationLock

BEFORE = ["x = [1]", "print(x)"]
AFTER = ["print(x)", "x.append(2); print(x)", "1 / 0", "print(x)", "import math; print(x)"]


def numbers(env):
    """Observe numbers instead of texts, for wrappers that compute with observations."""
    return wrappers.BytesObservation(env, length=8)


def flat(env):
    return gym.wrappers.FlattenObservation(numbers(env))


def rewarded(env):
    return wrappers.RewardSum(env, {"novelty": 1.0, "safety": 0.5, "length": -0.1, "exit_code": 0.25})


STACKS = {
    "RewardSum": rewarded,
    "PotentialShaping": lambda env: wrappers.PotentialShaping(rewarded(env), "novelty", gamma=0.5),
    "PotentialShaping of function": lambda env: wrappers.PotentialShaping(env, lambda obs, info: len(obs["stdout"])),
    "StackTranscript": lambda env: wrappers.StackTranscript(env, steps=3),
    "ChatObservation": lambda env: wrappers.ChatObservation(env, prompt="Go!", turns=3),
    "BytesObservation": numbers,
    "FencedCode": lambda env: wrappers.FencedCode(env, no_fence="text"),
    "Autoreset": Autoreset,
    "DelayObservation": lambda env: DelayObservation(flat(env), delay=1),
    "FrameStackObservation": lambda env: FrameStackObservation(numbers(env), 3),
    "NormalizeObservation": lambda env: NormalizeObservation(flat(env)),
    "NormalizeReward": lambda env: NormalizeReward(rewarded(env)),
    "RecordEpisodeStatistics": lambda env: RecordEpisodeStatistics(rewarded(env)),
    "StickyAction": lambda env: StickyAction(env, 0.5),
    "TimeAwareObservation": lambda env: TimeAwareObservation(env, flatten=False),
    "TimeLimit": lambda env: TimeLimit(env, 4),
    "TransformReward": lambda env: TransformReward(rewarded(env), lambda reward: 2 * reward),
    "all": lambda env: RecordEpisodeStatistics(
        NormalizeReward(TimeAwareObservation(wrappers.StackTranscript(rewarded(TimeLimit(env, 6))), flatten=False))
    ),
}


@pytest.fixture(scope="module")
def shared(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, screen=None, step_timeout=20, max_episode_steps=7)) as env:
        yield env


def steps(env, actions):
    """Return all results of steps, except times."""
    results = []
    for action in actions:
        result = copy.deepcopy(env.step(action))
        result[4].get("episode", {}).pop("t", None)
        results.append(result)
        if result[2] or result[3]:
            break
    return results


@pytest.mark.parametrize("name", STACKS)
def test_wrapped_environment_continues_from_snapshot(shared, name):
    env = STACKS[name](shared)
    env.reset(seed=1)
    steps(env, BEFORE)
    with branching.clone_state(env) as snapshot:
        expected = steps(env, AFTER)
        for _ in range(2):
            observation, info = branching.restore_state(env, snapshot)
            assert env.observation_space.contains(observation)
            assert info["outcome"] == "ok"
            assert data_equivalence(steps(env, AFTER), expected)


def test_snapshot_is_of_any_earlier_episode(shared):
    env = STACKS["all"](shared)
    env.reset(seed=1)
    steps(env, BEFORE)
    with branching.clone_state(env) as snapshot:
        expected = steps(env, AFTER)
        env.reset(seed=2)
        branching.restore_state(env, snapshot)
        assert data_equivalence(steps(env, AFTER), expected)


def test_observation_is_that_of_restored_state(shared):
    env = TimeAwareObservation(wrappers.ChatObservation(wrappers.StackTranscript(shared), prompt="Go!"), flatten=False)
    env.reset(seed=1)
    steps(env, BEFORE)
    with branching.clone_state(env) as snapshot:
        steps(env, AFTER)
        observation, _ = branching.restore_state(env, snapshot)
    assert observation["time"].tolist() == [2]
    assert observation["transcript"] == ">>> x = [1]\n>>> print(x)\n[1]"
    assert [message["role"] for message in observation["messages"]] == ["user", "assistant", "user", "assistant", "user"]


def test_stacked_frames_are_those_of_snapshot(shared):
    env = FrameStackObservation(numbers(shared), 2)
    env.reset(seed=1)
    last = steps(env, BEFORE)[-1][0]
    with branching.clone_state(env) as snapshot:
        steps(env, AFTER)
        assert data_equivalence(branching.restore_state(env, snapshot)[0], last)


def test_seed_applies_to_interpreter_and_wrappers(shared):
    env = StickyAction(shared, 0.5)
    env.reset(seed=1)
    env.step("import random")
    draws = ["print(random.random())", "print(2 * random.random())", "print(3 * random.random())"]
    with branching.clone_state(env) as snapshot:
        first = [branching.restore_state(env, snapshot, seed=5), *steps(env, draws)]
        again = [branching.restore_state(env, snapshot, seed=5), *steps(env, draws)]
        other = [branching.restore_state(env, snapshot, seed=6), *steps(env, draws)]
    assert data_equivalence(first, again)
    assert not data_equivalence(first, other)


def test_wrapped_shell_is_replayed(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, screen=None, max_episode_steps=3)) as env:
        env.reset(seed=1)
        env.step("x=1")
        snapshot = branching.clone_state(env)
        for _ in range(2):
            _, info = branching.restore_state(env, snapshot)
            assert info["replay"] == {"steps": 1, "differences": []}
            assert [env.step("echo $x")[3] for _ in range(2)] == [False, True]


def test_lost_state_is_replayed_with_wrappers(shared):
    env = STACKS["RewardSum"](shared)
    env.reset(seed=1)
    steps(env, BEFORE)
    snapshot = branching.clone_state(env, replay=True)
    snapshot.release()
    expected = steps(env, AFTER)
    branching.restore_state(env, snapshot, replay=True)
    assert data_equivalence(steps(env, AFTER), expected)


class Budget(gym.Wrapper):
    """Ends episodes when a budget is used up, which it keeps in its own place."""

    budgets = threading.local()

    def step(self, action):
        self.budgets.left -= 1
        *result, _, info = self.env.step(action)
        return *result, self.budgets.left <= 0, info

    def get_branch_state(self):
        return self.budgets.left

    def set_branch_state(self, state):
        self.budgets.left = state


def test_wrapper_copies_its_state_itself():
    lock = CombinationLock()
    env = Budget(lock)
    env.reset(seed=1)
    env.budgets.left = 2
    with branching.clone_state(env) as snapshot:
        for _ in range(2):
            assert [env.step(digit)[3] for digit in "12"] == [False, True]
            branching.restore_state(env, snapshot)
    assert lock.live == 0


class Lists(gym.Wrapper):
    """Shares a list between two attributes, and refers to itself and to the environment."""

    def __init__(self, env):
        super().__init__(env)
        self.first = self.second = []
        self.own = [self, env, env.unwrapped]
        self.method = self.count

    def count(self):
        return len(self.first)

    def step(self, action):
        self.first.append(action)
        self.late = True
        return self.env.step(action)


def test_references_within_wrapper_are_kept(lock):
    env = Lists(lock)
    env.step("1")
    with branching.clone_state(env) as snapshot:
        env.step("2")
        branching.restore_state(env, snapshot)
    assert env.first == ["1"]
    assert env.first is env.second
    assert [env.own[0] is env, env.own[1] is lock] == [True, True]
    assert env.method() == 1


def test_attributes_of_later_steps_are_removed(lock):
    env = Lists(lock)
    with branching.clone_state(env) as snapshot:
        env.step("1")
        branching.restore_state(env, snapshot)
    assert not hasattr(env, "late")


def test_attribute_that_cannot_be_copied_is_named(lock):
    env = TransformReward(lock, lambda reward: reward)
    env.guard, env.other = threading.Lock(), [threading.Lock()]
    with pytest.raises(SnapshotError, match="attribute 'guard' of TransformReward cannot be copied") as refused:
        branching.clone_state(env)
    assert len(refused.value.reasons) == 2
    assert lock.live == 0


def test_snapshot_of_other_wrappers_is_refused(lock):
    with (
        branching.clone_state(TimeLimit(lock, 3)) as snapshot,
        pytest.raises(ConfigurationError, match="no wrappers, got one with the wrappers TimeLimit"),
    ):
        branching.restore_state(lock, snapshot)


class ForkableLock(CombinationLock):
    """A lock with forks, as a stand-in for environments with sandboxes."""

    fails_to_fork = False
    closed = 0

    def fork(self, n, seeds=None):
        forks = [copy.deepcopy(self) for _ in range(n)]
        for fork, seed in zip(forks, seeds or [None] * n, strict=True):
            if seed is not None:
                fork.np_random = np.random.default_rng(seed)
        return forks

    def close(self):
        type(self).closed += 1


@pytest.fixture
def forkable():
    lock = ForkableLock()
    lock.reset(seed=1)
    return lock


class Plain(gym.Wrapper):
    """Counts steps, and does not record its arguments."""

    def __init__(self, env, start):
        super().__init__(env)
        self.counts = [start]
        self.latest = self.last

    def last(self):
        return self.counts[-1]

    def step(self, action):
        self.counts.append(self.counts[-1] + 1)
        *result, info = self.env.step(action)
        return *result, {**info, "count": self.latest()}


def test_forks_have_wrappers_in_the_same_state(forkable):
    env = RecordEpisodeStatistics(TimeLimit(Plain(forkable, 10), 4))
    env.reset(seed=1)
    env.step("3")
    forks = branching.fork(env, 2)
    expected = steps(env, "121")
    for fork in forks:
        assert str(fork) == str(env)
        assert fork.unwrapped is not forkable
        assert data_equivalence(steps(fork, "121"), expected)
    # The first three steps of a fork are not those of the other.
    assert forks[0].get_wrapper_attr("counts") == forks[1].get_wrapper_attr("counts") == [10, 11, 12, 13, 14]
    assert forks[0].get_wrapper_attr("counts") is not forks[1].get_wrapper_attr("counts")


def test_forks_with_seeds_differ(forkable):
    env = StickyAction(forkable, 0.5)
    env.reset(seed=1)
    env.step("1")
    first, again, other = (steps(fork, "3143") for fork in branching.fork(env, 3, [1, 1, 2]))
    assert data_equivalence(first, again)
    assert not data_equivalence(first, other)


class Closure(gym.Wrapper):
    """Has a function that refers to the wrapper itself."""

    def __init__(self, env):
        super().__init__(env)
        self.describe = lambda: str(self)


class Recorded(Closure, RecordConstructorArgs):
    def __init__(self, env):
        RecordConstructorArgs.__init__(self)
        Closure.__init__(self, env)


def test_function_that_refers_to_original_is_refused(forkable):
    with pytest.raises(ConfigurationError, match="function 'describe' refers to the original"):
        branching.fork(Closure(forkable), 2)
    assert ForkableLock.closed >= 2
    (fork,) = branching.fork(Recorded(TimeLimit(forkable, 3)), 1)
    assert fork.describe.__closure__[0].cell_contents is fork


def test_environment_without_fork_is_refused(lock):
    with pytest.raises(ConfigurationError, match="Expected an environment that has fork"):
        branching.fork(TimeLimit(lock, 3), 2)


@pytest.fixture
def lock():
    lock = CombinationLock()
    lock.reset(seed=1)
    return lock


def test_reward_terms_are_copied_with_their_state(shared):
    class Streak(terms.RewardTerm):
        name = "streak"
        length = 0

        def reset(self):
            self.length = 0

        def __call__(self, step):
            self.length = self.length + 1 if step.exit_code == 0 else 0
            return float(self.length)

    env = wrappers.RewardSum(shared, {Streak(): 1.0})
    env.reset(seed=1)
    assert [env.step(code)[1] for code in ("1", "2")] == [1.0, 2.0]
    with branching.clone_state(env) as snapshot:
        assert [env.step(code)[1] for code in ("1", "1 / 0")] == [3.0, 0.0]
        branching.restore_state(env, snapshot)
        assert env.step("1")[1] == 3.0
