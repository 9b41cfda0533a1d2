from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_gym.errors import ConfigurationError
from coding_gym_search import BranchTree, best_first, epsilon_greedy, mcts, puct, random_leaf, uct
from tests.support.lock import CombinationLock


def digits(node):
    return "12345"


def right(node):
    return node.info["right"] / 3


def actions(tree, node):
    return "".join(each.action for each in tree.path(node)[1:])


SEARCHES = {
    "best_first": partial(best_first, expansions=200),
    "uct": partial(mcts, simulations=200, policy=partial(uct, exploration=0.3)),
    "puct": partial(mcts, simulations=200, policy=partial(puct, exploration=0.5)),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@every_search
def test_search_opens_lock(tree, lock, search):
    best = search(tree, digits, right, target=1.0)
    assert best.terminated
    assert best is tree.best() is list(tree)[-1]
    assert (best.score, best.visits) == (1.0, 1)
    # Random digits need 125 attempts of 3 presses.
    assert lock.presses < 100
    assert actions(tree, best).endswith("4")


@every_search
@settings(max_examples=20, deadline=None)
@given(limit=st.integers(1, 8), length=st.integers(1, 40), seed=st.integers(0, 5))
def test_limit_changes_no_result(search, limit, length, seed):
    budget = {"simulations" if "simulations" in search.keywords else "expansions": length}
    trees = []
    for max_snapshots in (None, limit):
        lock = CombinationLock()
        lock.reset(seed=seed)
        with BranchTree(lock) as tree:
            search(tree, digits, right, max_snapshots=max_snapshots, **budget)
            trees.append(tree)
        assert lock.live == 0
    assert lock.most_live <= limit
    plain, limited = ([(node.action, *node.observation, node.value, node.visits) for node in list(tree)[1:]] for tree in trees)
    assert plain == limited
    assert trees[0].best().index == trees[1].best().index


@every_search
def test_propose_and_evaluate_are_called_once_per_node(tree, search):
    proposed, evaluated = Counter(), Counter()

    def propose(node):
        proposed[node.index] += 1
        return "35"

    def evaluate(node):
        evaluated[node.index] += 1
        return right(node)

    search(tree, propose, evaluate)
    assert set(evaluated) == {node.index for node in tree if node is not tree.root}
    assert set(proposed) <= {node.index for node in tree if not node.ended}
    assert {*proposed.values(), *evaluated.values()} == {1}


def test_best_first_expands_best_node(tree):
    best = best_first(tree, digits, right, expansions=15)
    # Each right digit is among the children of the one before.
    assert actions(tree, best) == "314"
    assert [(node.depth, actions(tree, node)[:-1]) for node in list(tree)[1::5]] == [(1, ""), (2, "3"), (3, "31")]


@pytest.mark.parametrize("expansions", [0, 1, 7, 12])
def test_expansions_are_the_budget(tree, lock, expansions):
    best_first(tree, digits, lambda node: -node.depth, expansions=expansions)
    assert len(tree) - 1 == lock.presses == expansions


def test_search_continues_where_it_ended(tree, lock):
    for _ in range(5):
        best = best_first(tree, digits, right, expansions=3)
    assert actions(tree, best) == "314"
    assert lock.presses == 15


def test_best_first_ends_when_nothing_is_open(tree, lock):
    best = best_first(tree, lambda node: "35" if node.depth < 2 else [], right, expansions=100)
    assert lock.presses == 2 + 4
    assert best.score == pytest.approx(1 / 3)
    assert best_first(tree, digits, right, expansions=100) is best
    assert lock.presses == 6


def test_best_first_ends_when_policy_selects_closed_node(tree, lock):
    best_first(tree, lambda node: "3" if node.depth < 2 else [], right, expansions=100, policy=uct)
    assert lock.presses == 2


@pytest.mark.parametrize("policy", [random_leaf, epsilon_greedy])
def test_seeded_policies_repeat_their_search(policy):
    runs = []
    for seed in (3, 3, 4):
        lock = CombinationLock()
        lock.reset(seed=1)
        with BranchTree(lock) as tree:
            policy_with_rng = partial(policy, rng=np.random.default_rng(seed))
            best_first(tree, digits, right, expansions=60, policy=policy_with_rng)
            runs.append([node.parent.index for node in tree if node.parent])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_mcts_visits_root_once_per_simulation(tree, lock):
    mcts(tree, digits, right, simulations=150)
    assert tree.root.visits == 150
    assert lock.presses == len(tree) - 1 <= 150
    for node in tree:
        own = sum(child.visits for child in node.children)
        assert node.visits - own == (0 if node is tree.root else 1) or node.ended


def test_mcts_prefers_better_actions(tree):
    mcts(tree, digits, right, simulations=300, policy=partial(uct, exploration=0.3))
    visits = {child.action: child.visits for child in tree.root.children}
    assert max(visits, key=visits.get) == "3"
    assert visits["3"] > 100


def test_mcts_visits_dead_ends_again(tree, lock):
    assert mcts(tree, lambda node: [], lambda node: 0.25, simulations=4) is tree.root
    assert (tree.root.visits, tree.root.mean, lock.presses) == (4, 0.25, 0)


def test_mcts_ends_when_policy_selects_nothing(tree, lock):
    rng, selected = np.random.default_rng(0), []

    def policy(tree):
        selected.append(random_leaf(tree, rng=rng))
        return selected[-1]

    mcts(tree, lambda node: "35" if node.depth < 1 else [], right, simulations=50, policy=policy)
    assert (lock.presses, tree.frontier()) == (2, [])
    assert selected.index(None) == len(selected) - 1


def test_evaluation_sets_priors(tree):
    def evaluate(node):
        node.prior = 100.0 if node.action == "2" else 0.0
        return 0.0

    mcts(tree, digits, evaluate, simulations=60, policy=puct)
    assert {child.action: child.visits for child in tree.root.children} == {"1": 1, "2": 56, "3": 1, "4": 1, "5": 1}


@every_search
def test_value_that_is_not_finite_stops_search(tree, search):
    with pytest.raises(ConfigurationError, match="finite number"):
        search(tree, digits, lambda node: math.nan)
    assert len(tree) == 2


@every_search
def test_action_that_failed_is_tried_again(tree, search):
    with pytest.raises(ValueError, match="invalid literal"):
        search(tree, lambda node: ["1", "x"], right)
    assert tree.root.untried == ["x"]
    tree.root.untried = ["3"]
    search(tree, lambda node: [], right)
    assert [child.action for child in tree.root.children] == ["1", "3"]
