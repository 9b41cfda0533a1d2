"""Search over the states of real interpreters."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import pytest
from gymnasium.wrappers import TimeLimit

from coding_gym_search import BranchTree, best_first
from tests.test_notebooks import shown


@pytest.fixture(scope="module")
def shared():
    with closing(gym.make("CodingEnv-v0", provider="local", preload=(), screen=None)) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1)
    return shared


def propose(node):
    return [f"found.append({digit}); print(found == digits[:len(found)], len(found))" for digit in range(4)]


def evaluate(node):
    right, length = node.observation["stdout"].split() if node.observation["stdout"] else ("True", "0")
    return float(length) if right == "True" else -1.0


def test_search_finds_what_a_walk_does_not(env):
    env.step("digits = [3, 1, 2]; found = []")
    with BranchTree(env, max_snapshots=8) as tree:
        best = best_first(tree, propose, evaluate, expansions=12)
    assert evaluate(best) == 3.0


def test_time_limit_counts_steps_of_each_branch(shared):
    env = TimeLimit(shared, 4)
    env.reset(seed=1)
    env.step("digits = [3, 1, 2]; found = []")
    with BranchTree(env, max_snapshots=6) as tree:
        best = best_first(tree, propose, evaluate, expansions=12)
        assert [node.truncated for node in tree] == [node.depth == 3 for node in tree]
    assert evaluate(best) == 3.0


def test_tree_shows_its_nodes_in_notebooks(shared):
    observation, info = shared.reset(seed=1)
    with BranchTree(shared, observation=observation, info=info) as tree:
        child = tree.expand(tree.root, "x = '<b>'")
        tree.backpropagate(tree.expand(child, "x"), 1.0)
        page = shown(tree)
    assert "BranchTree: 3 nodes" in page.text
    assert "x = '<b>'" in page.text
    assert page.elements.count("li") == 3
