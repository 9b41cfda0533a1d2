from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest

from coding_gym.errors import ConfigurationError
from coding_gym_search import epsilon_greedy, highest_score, puct, random_leaf, uct


@pytest.fixture
def children(tree):
    return [tree.expand(tree.root, digit) for digit in "125"]


def visit(tree, node, *values):
    for value in values:
        tree.backpropagate(node, value)


def test_uct_visits_each_child_first(tree, children):
    for child in children:
        assert tree.select(uct) is child
        visit(tree, child, 0.5)


def test_uct_follows_bound(tree, children):
    visit(tree, children[0], *[0.6] * 6)
    visit(tree, children[1], 0.5, 0.5)
    visit(tree, children[2], *[0.4] * 8)
    # Bounds: 0.6 + c * 0.680, 0.5 + c * 1.177, 0.4 + c * 0.589; the first two are equal at c = 0.201.
    assert tree.root.visits == 16
    crossing = 0.1 / (math.sqrt(math.log(16) / 2) - math.sqrt(math.log(16) / 6))
    assert tree.select(partial(uct, exploration=crossing - 1e-6)) is children[0]
    assert tree.select(partial(uct, exploration=crossing + 1e-6)) is children[1]
    assert tree.select(uct) is children[1]


@pytest.mark.parametrize("policy", [partial(uct, exploration=0.0), partial(puct, exploration=0.0)])
def test_descent_goes_down_to_open_node(tree, children, policy):
    for child, value in zip(children, [0.1, 0.9, 0.5], strict=True):
        visit(tree, child, value)
    below = tree.expand(children[1], "7")
    visit(tree, below, 0.8)
    assert tree.select(policy) is below
    children[1].untried = ["8"]
    assert tree.select(policy) is children[1]
    tree.root.untried = ["9"]
    assert tree.select(policy) is tree.root


@pytest.mark.parametrize("policy", [uct, puct])
def test_descent_ends_where_nothing_is_left(tree, policy):
    assert tree.select(policy) is tree.root
    tree.root.untried = []
    assert tree.select(policy) is tree.root
    node = tree.root
    for digit in "314":
        node = tree.expand(node, digit)
    assert node.ended
    assert tree.select(policy) is node


def test_puct_follows_bound(tree, children):
    for child, prior in zip(children, [6.0, 1.0, 1.0], strict=True):
        child.prior = prior
    visit(tree, children[0], *[0.2] * 3)
    visit(tree, children[1], 0.8)
    # N = 4. Bounds: 0.2 + c * 0.75 * 2 / 4, 0.8 + c * 0.125 * 2 / 2, 0 + c * 0.125 * 2; equal at c = 2.4 for the first two.
    assert tree.select(partial(puct, exploration=2.39)) is children[1]
    assert tree.select(partial(puct, exploration=2.41)) is children[0]
    children[0].prior = 0.0
    children[1].prior = children[2].prior = 0.5
    # Bounds: 0.2, 0.8 + c * 0.5 * 2 / 2, 0 + c * 0.5 * 2; equal at c = 1.6 for the last two.
    assert tree.select(partial(puct, exploration=1.59)) is children[1]
    assert tree.select(partial(puct, exploration=1.61)) is children[2]


def test_puct_without_priors_follows_means(tree, children):
    for child, value in zip(children, [0.1, 0.9, 0.5], strict=True):
        child.prior = 0.0
        visit(tree, child, value)
    assert tree.select(puct) is children[1]


def test_highest_score_is_of_open_node(tree, children):
    assert tree.select(highest_score) is children[0]
    visit(tree, children[1], -0.5)
    assert tree.select(highest_score) is children[1]
    visit(tree, children[2], 0.5)
    assert tree.select(highest_score) is children[2]
    children[2].untried = []
    assert tree.select(highest_score) is children[1]


def test_random_leaf_is_uniform_and_seeded(tree, children):
    tree.expand(children[0], "3")
    rng = np.random.default_rng(0)
    counts = Counter(random_leaf(tree, rng=rng).index for _ in range(3000))
    assert set(counts) == {children[1].index, children[2].index, 4}
    assert all(900 < count < 1100 for count in counts.values())
    first, again = (
        [tree.select(partial(random_leaf, rng=rng)) for _ in range(20)]
        for rng in (np.random.default_rng(7), np.random.default_rng(7))
    )
    assert first == again


def test_epsilon_is_the_share_of_random_leaves(tree, children):
    visit(tree, children[2], 1.0)
    rng = np.random.default_rng(0)
    shares = {
        epsilon: sum(epsilon_greedy(tree, rng=rng, epsilon=epsilon) is children[2] for _ in range(2000)) / 2000
        for epsilon in (0.0, 0.6, 1.0)
    }
    assert shares[0.0] == 1.0
    assert 0.55 < shares[0.6] < 0.65
    assert 0.28 < shares[1.0] < 0.39


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, math.nan])
def test_invalid_epsilon_is_refused(tree, epsilon):
    with pytest.raises(ConfigurationError, match="Expected epsilon="):
        epsilon_greedy(tree, rng=np.random.default_rng(0), epsilon=epsilon)


def test_nothing_open_selects_nothing(tree):
    tree.root.untried = []
    rng = np.random.default_rng(0)
    assert tree.select(highest_score) is None
    assert tree.select(partial(random_leaf, rng=rng)) is None
    assert tree.select(partial(epsilon_greedy, rng=rng)) is None
