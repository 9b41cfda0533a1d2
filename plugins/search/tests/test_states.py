from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.wrappers import TransformReward

from coding_gym.errors import ConfigurationError
from coding_gym_search import BranchTree


def test_steps_go_through_wrappers(lock):
    with BranchTree(TransformReward(lock, lambda reward: reward * 8)) as tree:
        assert tree.expand(tree.root, "1").reward == -1.0
        tree.expand(tree.root, "2")
    assert lock.restores == 1


class CountSteps(gym.Wrapper):
    """Adds the number of steps of the episode to infos, and clones it with the state."""

    steps = 0

    def step(self, action):
        self.steps += 1
        *result, info = self.env.step(action)
        return *result, {**info, "steps": self.steps}

    def clone_state(self):
        snapshot = self.unwrapped.clone_state()
        snapshot.steps = self.steps
        return snapshot

    def restore_state(self, snapshot, *, seed=None):
        self.steps = snapshot.steps
        return self.unwrapped.restore_state(snapshot, seed=seed)


def test_wrapper_that_clones_its_state_is_preferred(lock):
    with BranchTree(CountSteps(lock)) as tree:
        deep = tree.expand(tree.expand(tree.expand(tree.root, "1"), "2"), "3")
        assert (deep.info["steps"], tree.expand(tree.root, "1").info["steps"]) == (3, 1)
        assert tree.expand(deep, "4").info["steps"] == 4


def test_environment_that_cannot_clone_is_refused():
    with pytest.raises(ConfigurationError, match="Expected an environment that has clone_state"):
        BranchTree(gym.make("CartPole-v1"))
