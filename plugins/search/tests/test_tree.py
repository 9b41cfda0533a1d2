from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_gym.errors import ConfigurationError
from coding_gym_search import BranchTree
from tests.support.lock import CombinationLock, replay


def new_lock(**options):
    lock = CombinationLock(**options)
    lock.reset(seed=1)
    return lock


def expand_path(tree, digits):
    node = tree.root
    for digit in digits:
        node = tree.expand(node, digit)
    return node


# Steps, a list of (which of the nodes that have not ended, digit), make a tree.
growths = st.lists(st.tuples(st.integers(0, 100), st.sampled_from("314")), max_size=25)


def grow(tree, growth):
    for pick, digit in growth:
        nodes = [node for node in tree if not node.ended]
        yield tree.expand(nodes[pick % len(nodes)], digit)


# Expansion


def test_child_has_what_step_returned(lock):
    observation, info = lock.reset(seed=1)
    with BranchTree(lock, observation=observation, info=info) as tree:
        assert (tree.root.observation is observation, tree.root.info, tree.root.action) == (True, {"right": 0}, None)
        first = tree.expand(tree.root, "3", prior=0.5)
        last = expand_path(tree, "314")
    told = replay("3")
    assert np.array_equal(first.observation, told[0])
    assert (first.reward, first.terminated, first.truncated, first.info) == told[1:]
    assert (first.action, first.parent, first.depth, first.prior) == ("3", tree.root, 1, 0.5)
    assert (last.terminated, last.truncated, last.ended) == (True, False, True)
    assert (last.reward, last.total_reward, last.depth) == (0.875, 0.625, 3)


@settings(deadline=None)
@given(growth=growths, limit=st.none() | st.integers(1, 5))
def test_every_node_is_reached_exactly(growth, limit):
    lock = new_lock()
    with BranchTree(lock, max_snapshots=limit) as tree:
        for child in grow(tree, growth):
            told = replay([node.action for node in tree.path(child)[1:]])
            assert np.array_equal(child.observation, told[0])
            assert (child.reward, child.terminated, child.truncated, child.info) == told[1:]


@settings(deadline=None)
@given(growth=growths, limit=st.integers(1, 5))
def test_live_snapshots_never_exceed_limit(growth, limit):
    lock = new_lock()
    with BranchTree(lock, max_snapshots=limit) as tree:
        for child in grow(tree, growth):
            assert tree.live_snapshots == lock.live == sum(node.snapshot is not None for node in tree)
            assert child.snapshot is None or not child.ended
    assert lock.most_live <= limit
    assert lock.live == 0


@settings(deadline=None)
@given(growth=growths)
def test_unlimited_tree_never_runs_actions_again(growth):
    lock = new_lock()
    with BranchTree(lock) as tree:
        steps = len(list(grow(tree, growth)))
        assert lock.presses == steps == len(tree) - 1
        assert lock.live == sum(not node.ended for node in tree)
    assert lock.live == 0


def test_restore_is_skipped_in_same_state(tree, lock):
    node = expand_path(tree, "12")
    assert lock.restores == 0
    tree.expand(node.parent, "3")
    assert lock.restores == 1
    tree.restore(node)
    tree.restore(node)
    tree.expand(node, "4")
    assert lock.restores == 2


def test_released_node_runs_fewest_actions_again(lock):
    with BranchTree(lock, max_snapshots=1) as tree:
        deep = expand_path(tree, "1122")
        assert (lock.presses, lock.restores) == (4, 0)
        tree.restore(deep.parent)
        assert (lock.presses, lock.restores) == (4 + 3, 1)
        # The environment is on the way to the node.
        tree.expand(deep, "3")
        assert (lock.presses, lock.restores) == (4 + 3 + 2, 1)
        tree.max_snapshots = 2
        tree.restore(deep.parent.parent)
        assert deep.parent.parent.snapshot is not None
        tree.restore(tree.root)
        before = lock.presses
        tree.restore(deep)
        assert lock.presses == before + 2


def test_node_being_expanded_keeps_its_snapshot(lock):
    with BranchTree(lock, max_snapshots=2) as tree:
        node = tree.expand(tree.root, "1")
        tree.backpropagate(node, -1.0)
        children = [tree.expand(node, digit) for digit in "125"]
        assert node.snapshot is not None
        assert all(child.snapshot is None for child in children)
        assert lock.presses == 4


def test_ended_node_can_be_restored_not_expanded(tree, lock):
    last = expand_path(tree, "314")
    tree.restore(tree.root)
    tree.restore(last)
    assert (lock.presses, last.snapshot) == (4, None)
    with pytest.raises(AssertionError, match="the episode is over"):
        lock.step("1")
    with pytest.raises(ConfigurationError, match="Expected a node whose episode continues"):
        tree.expand(last, "1")


def test_state_is_restored_after_failed_step(tree, lock):
    node = tree.expand(tree.root, "3")
    lock.jams_after = 1
    with pytest.raises(OSError, match="jammed"):
        tree.expand(node, "5")
    assert (len(tree), node.children) == (2, [])
    child = tree.expand(node, "1")
    assert lock.restores == 1
    assert np.array_equal(child.observation, replay("31")[0])


def test_state_is_restored_after_failed_rerun(lock):
    with BranchTree(lock, max_snapshots=1) as tree:
        node = expand_path(tree, "31")
        tree.restore(tree.root)
        lock.jams_after = 2
        with pytest.raises(OSError, match="jammed"):
            tree.restore(node)
        assert np.array_equal(tree.expand(node, "2").observation, replay("312")[0])


def test_child_stays_when_its_state_cannot_be_cloned(tree, lock):
    lock.refuses_clone_of = "3"
    with pytest.raises(RuntimeError, match="cannot clone this state"):
        tree.expand(tree.root, "3")
    (child,) = tree.root.children
    assert (child.snapshot, len(tree), lock.live) == (None, 2, 1)
    lock.refuses_clone_of = None
    assert np.array_equal(tree.expand(child, "1").observation, replay("31")[0])


@pytest.mark.parametrize("presses", [3, 4])
def test_rerun_that_ends_episode_is_noticed(lock, presses):
    with BranchTree(lock, max_snapshots=1) as tree:
        node = expand_path(tree, "12")
        tree.restore(tree.root)
        lock.worn_out_after = presses
        if presses == 4:
            tree.restore(node)
        else:
            with pytest.raises(ConfigurationError, match="but the episode ended: raise max_snapshots="):
                tree.restore(node)


def test_rerun_that_no_longer_ends_is_noticed(tree, lock):
    lock.worn_out_after = 0
    node = tree.expand(tree.root, "1")
    assert node.truncated
    lock.worn_out_after = None
    tree.restore(tree.root)
    with pytest.raises(ConfigurationError, match="but the episode continues"):
        tree.restore(node)


# Values


@settings(deadline=None)
@given(growth=growths, values=st.lists(st.floats(-5, 5), max_size=25), discount=st.sampled_from([1.0, 0.5, 0.0]))
def test_backpropagation_adds_discounted_values(growth, values, discount):
    with BranchTree(new_lock(), discount=discount) as tree:
        nodes = [tree.root, *grow(tree, growth)]
        given_values = [(nodes[number % len(nodes)], value) for number, value in enumerate(values)]
        for node, value in given_values:
            tree.backpropagate(node, value)
        for node in tree:
            below = [(each, value) for each, value in given_values if node in tree.path(each)]
            expected = sum(value * discount ** (each.depth - node.depth) for each, value in below)
            assert node.visits == len(below)
            assert node.value == pytest.approx(expected, abs=1e-9)
            assert node.mean == pytest.approx(expected / len(below) if below else 0.0, abs=1e-9)
            own = [value for each, value in given_values if each is node]
            assert node.score == (own[-1] if own else None)


def test_best_has_highest_score_not_mean(tree):
    assert tree.best() is tree.root
    good, other = tree.expand(tree.root, "3"), tree.expand(tree.root, "1")
    tree.backpropagate(good, 0.9)
    tree.backpropagate(other, 0.5)
    for digit in "29":
        tree.backpropagate(tree.expand(good, digit), -1.0)
    assert good.mean < other.mean
    assert tree.best() is good
    tree.backpropagate(tree.expand(other, "3"), 0.9)
    assert tree.best() is good


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_value_that_is_not_finite_is_refused(tree, value):
    with pytest.raises(ConfigurationError, match="finite number"):
        tree.backpropagate(tree.root, value)
    assert (tree.root.visits, tree.root.score) == (0, None)


# Pruning


def test_pruning_releases_least_valuable_first(tree, lock):
    tried, low, high, unvisited = (tree.expand(tree.root, digit) for digit in "1256")
    deep_low = tree.expand(low, "7")
    tried.untried = []
    for node, value in [(tried, 9.0), (high, 5.0), (deep_low, 1.0)]:
        tree.backpropagate(node, value)
    assert low.mean == deep_low.mean == 1.0
    order = [tried, low, deep_low, high, unvisited]
    for count, node in enumerate(order, start=1):
        assert tree.prune(len(order) + 1 - count) == 1
        assert [each for each in order if each.snapshot is None] == order[:count]
        assert node.snapshot is None
    assert tree.prune(1) == 0
    assert tree.root.snapshot is not None
    assert (lock.live, tree.live_snapshots, len(tree)) == (1, 1, 6)


def test_new_node_gets_snapshot_of_least_valuable(lock):
    with BranchTree(lock, max_snapshots=3) as tree:
        good, bad = tree.expand(tree.root, "3"), tree.expand(tree.root, "1")
        tree.backpropagate(good, 1.0)
        tree.backpropagate(bad, 0.0)
        new = tree.expand(good, "1")
        assert [node for node in tree if node.snapshot] == [tree.root, good, new]


def test_lower_limit_prunes_at_once(tree, lock):
    expand_path(tree, "1212")
    tree.max_snapshots = 3
    assert (lock.live, tree.max_snapshots) == (3, 3)
    tree.max_snapshots = None
    expand_path(tree, "3")
    assert lock.live == 4


def test_nbytes_sums_live_snapshots(tree):
    expand_path(tree, "12")
    assert tree.nbytes == 100 + 101 + 102
    tree.prune(1)
    assert tree.nbytes == 100


# Structure


def test_views_of_structure(tree):
    left, right = tree.expand(tree.root, "1"), tree.expand(tree.root, "3")
    last = tree.expand(left, "3")
    assert (list(tree), len(tree)) == ([tree.root, left, right, last], 4)
    assert tree.path(last) == [tree.root, left, last]
    assert tree.leaves() == tree.frontier() == [right, last]
    assert tree.parents().tolist() == [-1, 0, 0, 1]
    assert tree.parents().dtype == np.int64
    left.untried, right.untried = ["5"], []
    assert tree.frontier() == [left, last]
    opened = expand_path(tree, "314")
    assert opened in tree.leaves()
    assert opened not in tree.frontier()


def test_iteration_may_expand(tree):
    assert [node.depth for node in tree for _ in [tree.expand(node, "1")]] == [0]


def test_other_nodes_are_refused(tree):
    with BranchTree(new_lock()) as other:
        for use in (tree.restore, tree.path, lambda node: tree.expand(node, "1"), lambda node: tree.backpropagate(node, 1.0)):
            with pytest.raises(ConfigurationError, match="Expected a node of this tree"):
                use(other.root)
        with pytest.raises(ConfigurationError, match="Expected a node of this tree"):
            tree.select(lambda tree: other.root)
        with pytest.raises(ConfigurationError, match="Expected a node of this tree"):
            tree.select(lambda tree: "root")


def test_closed_tree_can_be_read_not_expanded(lock):
    tree = BranchTree(lock)
    node = expand_path(tree, "12")
    tree.close()
    tree.close()
    assert (lock.live, tree.live_snapshots) == (0, 0)
    assert [each.action for each in tree.path(node)] == [None, "1", "2"]
    with pytest.raises(ConfigurationError, match="The tree is closed"):
        tree.expand(node, "3")


def test_close_releases_all_even_if_one_fails(lock):
    tree = BranchTree(lock)
    expand_path(tree, "12")
    lock.fails_to_release = True
    with pytest.raises(OSError, match="cannot release"):
        tree.close()
    assert lock.live == 0


def test_snapshots_are_released_when_block_raises(lock):
    def search():
        with BranchTree(lock) as tree:
            expand_path(tree, "12")
            assert lock.live == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search()
    assert lock.live == 0


# Options


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"discount": 1.5}, "Expected discount="),
        ({"discount": math.nan}, "Expected discount="),
        ({"max_snapshots": 0}, "Expected max_snapshots="),
        ({"max_snapshots": True}, "Expected max_snapshots="),
        ({"max_snapshots": 2.0}, "Expected max_snapshots="),
    ],
)
def test_invalid_options_are_refused(lock, options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        BranchTree(lock, **options)
    assert lock.live == 0


@pytest.mark.parametrize("limit", [0, None])
def test_invalid_limit_is_refused_without_effect(tree, limit):
    expand_path(tree, "12")
    with pytest.raises(ConfigurationError, match="Expected keep="):
        tree.prune(limit)
    with pytest.raises(ConfigurationError, match="Expected max_snapshots="):
        tree.max_snapshots = limit or 0
    assert (tree.live_snapshots, tree.max_snapshots) == (3, None)
