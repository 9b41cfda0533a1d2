from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_gym.errors import ConfigurationError
from coding_gym_search import (
    inter_tree_advantages,
    intra_tree_advantages,
    process_values,
    tree_grpo_advantages,
)

eighths = st.integers(-8000, 8000).map(lambda number: number / 8)


@st.composite
def some_leaves(draw):
    """Return the rewards, trees and prompts of some leaves; each tree has one prompt."""
    rows = draw(st.lists(st.tuples(eighths, st.integers(0, 5)), max_size=30))
    rewards, trees = np.array([reward for reward, _ in rows]), np.array([tree for _, tree in rows], dtype=int)
    return rewards, trees, trees % 2


def total_of(advantages, labels, label):
    return advantages[labels == label].sum()


@settings(deadline=None)
@given(leaves=some_leaves())
def test_advantages_have_zero_mean(leaves):
    rewards, trees, prompts = leaves
    intra = intra_tree_advantages(rewards, trees)
    inter = inter_tree_advantages(rewards, prompts)
    both = tree_grpo_advantages(rewards, trees, prompts)
    assert all(math.isclose(total_of(intra, trees, tree), 0, abs_tol=1e-6) for tree in set(trees))
    assert all(math.isclose(total_of(inter, prompts, prompt), 0, abs_tol=1e-6) for prompt in set(prompts))
    assert all(math.isclose(total_of(both, prompts, prompt), 0, abs_tol=1e-6) for prompt in set(prompts))
    assert np.array_equal(both, intra + inter)


@settings(deadline=None)
@given(leaves=some_leaves())
def test_advantages_keep_order_of_rewards(leaves):
    rewards, trees, _ = leaves
    intra = intra_tree_advantages(rewards, trees)
    for tree in set(trees):
        own, of = intra[trees == tree], rewards[trees == tree]
        assert (np.diff(own[np.argsort(of)]) >= 0).all()
        if of.max() - of.min() > 1.0:
            # n - 1 in the denominator.
            assert own.std(ddof=1) == pytest.approx(1, rel=1e-4)


@settings(deadline=None)
@given(leaves=some_leaves(), seed=st.integers(0, 9))
def test_order_of_leaves_does_not_matter(leaves, seed):
    rewards, trees, prompts = leaves
    order = np.random.default_rng(seed).permutation(len(rewards))
    shuffled = tree_grpo_advantages(rewards[order], trees[order], prompts[order])
    assert shuffled == pytest.approx(tree_grpo_advantages(rewards, trees, prompts)[order], abs=1e-6)


def test_advantages_of_two_trees():
    rewards, trees = [1, 0, 0, 1, 1], [7, 7, 7, 8, 8]
    intra = intra_tree_advantages(rewards, trees)
    third = 1 / math.sqrt(3)
    assert intra == pytest.approx([2 * third, -third, -third, 0, 0], abs=1e-5)
    inter = inter_tree_advantages(rewards)
    deviation = math.sqrt((3 * 0.4**2 + 2 * 0.6**2) / 4)
    assert inter == pytest.approx(np.array([0.4, -0.6, -0.6, 0.4, 0.4]) / deviation, abs=1e-5)
    assert tree_grpo_advantages(rewards, trees).tolist() == (intra + inter).tolist()


def test_prompts_are_compared_separately():
    rewards, prompts = [1, 0, 10, 30], ["a", "a", "b", "b"]
    half = 1 / math.sqrt(2)
    assert inter_tree_advantages(rewards, prompts) == pytest.approx([half, -half, -half, half], abs=1e-5)


@pytest.mark.parametrize("rewards", [[0.1] * 7, [1e16 / 3] * 7, [0.7], []])
def test_equal_rewards_have_no_advantage(rewards):
    for advantages in (intra_tree_advantages(rewards, [0] * len(rewards)), inter_tree_advantages(rewards)):
        assert advantages.tolist() == [0.0] * len(rewards)
        assert advantages.dtype == np.float64


def test_tree_of_two_prompts_is_refused():
    with pytest.raises(ConfigurationError, match="Expected the leaves of each tree to have one prompt"):
        tree_grpo_advantages([1, 2, 3], [0, 0, 1], ["a", "b", "b"])
    assert len(tree_grpo_advantages([1, 2, 3], [0, 1, 1], ["a", "b", "b"])) == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: intra_tree_advantages([1, 2], [0]), r"trees= to have one label per reward, shape \(2,\), got \(1,\)"),
        (lambda: inter_tree_advantages([1, 2], ["a"]), "prompts= to have one label per reward"),
        (lambda: inter_tree_advantages([[1, 2]]), r"Expected rewards= to have shape \(leaves,\), got \(1, 2\)"),
        (lambda: inter_tree_advantages([1, math.nan]), "finite numbers"),
        (lambda: process_values([-1, 0], [0]), "one parent and one reward per node"),
        (lambda: process_values(-1, 0), "one parent and one reward per node"),
        (lambda: process_values([-1, 1], [0, 0]), "index of an earlier node"),
        (lambda: process_values([-1, -2], [0, 0]), "index of an earlier node"),
        (lambda: process_values([-1.0, 0.0], [0, 0]), "Expected parents= to be integers"),
        (lambda: process_values([-1, 0], [0, math.inf]), "finite numbers"),
    ],
)
def test_invalid_arrays_are_refused(call, hint):
    with pytest.raises(ConfigurationError, match=hint):
        call()


def leaf_rewards_below(node, parents, rewards):
    children = [child for child, parent in enumerate(parents) if parent == node]
    return [reward for child in children for reward in leaf_rewards_below(child, parents, rewards)] or [rewards[node]]


@settings(deadline=None)
@given(picks=st.lists(st.integers(-1, 30), min_size=1, max_size=30), data=st.data())
def test_process_value_is_mean_of_leaves_below(picks, data):
    parents = [pick % (number + 1) - 1 for number, pick in enumerate(picks)]
    rewards = data.draw(st.lists(eighths, min_size=len(parents), max_size=len(parents)))
    values = process_values(parents, rewards)
    for node in range(len(parents)):
        assert values[node] == pytest.approx(np.mean(leaf_rewards_below(node, parents, rewards)), rel=1e-9, abs=1e-6)


def test_rewards_of_inner_nodes_are_not_read():
    rewards = np.array([math.nan, math.nan, 1.0, 0.0])
    assert process_values([-1, 0, 1, 1], rewards).tolist() == [0.5, 0.5, 1.0, 0.0]
    assert np.isnan(rewards[:2]).all()
    assert process_values([], []).tolist() == []


def test_values_of_a_tree(tree):
    digits = ["3", "1"]
    for node in [tree.expand(tree.root, digit) for digit in digits]:
        for digit in digits:
            tree.expand(node, digit)
    values = process_values(tree.parents(), [node.info.get("right", 0) for node in tree])
    assert {"".join(each.action for each in tree.path(node)[1:]): value for node, value in zip(tree, values, strict=True)} == {
        "": 1.0,
        "3": 1.5,
        "1": 0.5,
        "33": 1.0,
        "31": 2.0,
        "13": 1.0,
        "11": 0.0,
    }
