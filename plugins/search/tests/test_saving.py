from __future__ import annotations

import io
import json
import math
import re
import time

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from coding_gym import inputs
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym_search import BranchTree, load_tree, mcts
from coding_gym_search.saved_tree import is_saved_tree


class Stub:
    """State of ``Replies``, which has none."""

    def release(self) -> None:
        pass


class Replies(gym.Env):
    """Observes what the action says: a function of the observation and info of the next step."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return None, {}

    def step(self, action):
        reply = self.reply
        return reply.get("observation"), reply.get("reward", 0.0), False, reply.get("ended", False), reply.get("info", {})

    def clone_state(self):
        return Stub()

    def restore_state(self, snapshot, *, seed=None):
        return None, {}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "search.tree.jsonl"


def save_one(path, action="act", *, save_options=None, **reply):
    """Save a tree with one step, and return its node."""
    env = Replies()
    env.reset()
    env.reply = reply
    with BranchTree(env) as tree:
        tree.expand(tree.root, action)
    tree.save(path, **(save_options or {}))
    return load_tree(path)[1]


def printed(stdout, **fields):
    return {"stdout": stdout, "stderr": "", "exit_code": 0, **fields}


def test_search_survives_the_round_trip(lock, path):
    with BranchTree(lock) as tree:
        mcts(tree, lambda node: "123", lambda node: node.info["right"] / 3, simulations=60)
    tree.save(path)
    saved = load_tree(path)
    assert len(saved) == len(tree) > 20
    for node, copy in zip(tree, saved, strict=True):
        assert (copy.id, copy.parent) == (node.index, node.parent and node.parent.index)
        for name in ("depth", "action", "reward", "total_reward", "terminated", "truncated", "value", "visits", "score"):
            assert getattr(copy, name) == getattr(node, name), name
        assert (copy.mean, copy.ended) == (node.mean, node.ended)
        assert copy.untried == (None if node.untried is None else len(node.untried))
        assert [child.id for child in saved.children(copy)] == [child.index for child in node.children]
    assert [node.id for node in saved.path(saved.best())] == [node.index for node in tree.path(tree.best())]
    assert saved.root is saved[0]


def test_saved_tree_says_what_it_is(lock, path):
    with BranchTree(lock) as tree:
        tree.save(path)
    assert is_saved_tree(path)
    assert repr(load_tree(path)) == "SavedTree(1 nodes, environment=None)"


def test_environment_and_output_are_kept(path):
    node = save_one(
        path, "print('é')", observation=printed("é\n", exit_code=np.int64(3)), info={"outcome": "ok", "solved": True}
    )
    assert (node.action, node.stdout, node.stderr, node.exit_code) == ("print('é')", "é\n", "", 3)
    assert (node.outcome, node.solved, node.observation, node.picture) == ("ok", True, None, None)


def test_long_output_is_clamped_and_its_length_stated(path):
    node = save_one(path, "a" * 1000, observation=printed("x" * 1000), save_options={"max_output_chars": 100})
    assert node.stdout == f"{'x' * 50}\n[... 900 characters ...]\n{'x' * 50}"
    assert (node.stdout_chars, node.stderr_chars, len(node.action)) == (1000, None, 1000)


@pytest.mark.parametrize("limit", [99, -1, True, 200.0])
def test_limit_of_outputs_is_checked(tree, path, limit):
    with pytest.raises(ConfigurationError, match="max_output_chars= to be an integer of at least 100"):
        tree.save(path, max_output_chars=limit)


def test_lone_surrogates_are_replaced(path):
    node = save_one(path, "'\ud800'", observation=printed("\udfff!"), info={"outcome": "\ud800"})
    assert (node.action, node.stdout, node.outcome) == ("'\ufffd'", "\ufffd!", "\ufffd")


@pytest.mark.parametrize(
    ("observation", "text"), [("said", "said"), (np.array([1, 2]), "[1 2]"), ({"score": 3}, "{'score': 3}"), (None, None)]
)
def test_other_observations_are_kept_as_text(path, observation, text):
    node = save_one(path, observation=observation)
    assert (node.observation, node.stdout) == (text, None)


@pytest.mark.parametrize(
    ("action", "data"),
    [
        (inputs.Click(x=3, y=4), {"x": 3, "y": 4}),
        ([np.int64(1), np.array([2.5])], [1, [2.5]]),
        ({1: "one"}, {"1": "one"}),
        (2**70, 2**70),
        (math.inf, None),
        (range(2), "range(0, 2)"),
    ],
)
def test_actions_are_kept_as_data(path, action, data):
    found = save_one(path, action).action
    assert {name: found[name] for name in data} == data if isinstance(data, dict) else found == data


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_numbers_that_are_not_finite_become_none(path, reward):
    node = save_one(path, reward=reward)
    assert (node.reward, node.total_reward) == (None, None)


def test_screens_are_png_files(path):
    screen = np.random.default_rng(1).integers(0, 255, (4, 6, 3), np.uint8)
    node = save_one(path, observation=printed("", screenshot=screen))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(node.picture))), screen)
    assert save_one(path, observation=printed("", screenshot=np.zeros_like(screen))).picture is None
    options = {"include_pictures": False}
    assert save_one(path, observation=printed("", screenshot=screen), save_options=options).picture is None


json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(action=json_data, stdout=st.text(), reward=st.floats(allow_nan=False, allow_infinity=False), outcome=st.text())
def test_any_data_survives_the_round_trip(path, action, stdout, reward, outcome):
    node = save_one(path, action, observation=printed(stdout), reward=reward, info={"outcome": outcome})
    assert (node.action, node.stdout, node.reward, node.outcome) == (action, stdout, reward, outcome)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(categories=["Cs", "L", "Cc"])))
def test_any_text_can_be_saved(path, text):
    node = save_one(path, text, observation=printed(text))
    assert len(node.action) == len(node.stdout) <= len(text)


@pytest.fixture
def lines(lock, path):
    """Lines of a file with a root and three nodes, of which the last is a grandchild."""
    with BranchTree(lock) as tree:
        children = [tree.expand(tree.root, digit) for digit in "12"]
        tree.expand(children[1], "3")
    tree.save(path)
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (4, "{", "Input data was truncated"),
        (3, "", "Input data was truncated"),
        (3, "[]", "Expected `object`, got `array`"),
        (3, {"visits": -1}, r"Expected `int` >= 0 - at `\$.visits`"),
        (3, {"value": "much"}, r"Expected `float | null`, got `str` - at `\$.value`"),
        (3, {"id": 7}, "expected the id 1, got 7"),
        (5, {"parent": 3}, "expected the parent to be an earlier node, got 3"),
        (5, {"parent": None}, "expected a parent, because only the first node is a root"),
        (5, {"depth": 1}, "expected the depth 2, one more than that of the parent, got 1"),
        (2, {"depth": 1}, "expected the depth 0"),
        (4, {"picture": "AAAA"}, "expected the picture to be a PNG file"),
        (4, {"picture": "not base64"}, "Invalid base64 encoded string"),
        (4, '{"id": 2, "action": ' + "[" * 100_000, "recursion"),
        (4, '{"id": 2, "action": "\udcff"}', "utf-8|Invalid"),
    ],
)
def test_damaged_line_is_named(path, lines, number, change, reason):
    lines[number - 1] = change if isinstance(change, str) else json.dumps(json.loads(lines[number - 1]) | change)
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    with pytest.raises(
        DatasetError, match=f"Line {number} of {re.escape(str(path))} is not a node of a saved tree: .*({reason})"
    ):
        load_tree(path)


def test_every_torn_file_is_noticed(path, lines):
    whole = path.read_bytes()
    for end in range(len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(DatasetError):
            load_tree(path)


def test_missing_and_surplus_lines_are_noticed(path, lines):
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DatasetError, match="ends after 3 of 4 nodes"):
        load_tree(path)
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")
    with pytest.raises(DatasetError, match=r"Line 6 of .*: the header announces 4 nodes"):
        load_tree(path)


@pytest.mark.parametrize("header", ["", "{}", '{"format":"coding-gym tree","version":2,"nodes":1}', "\udcff", "x" * 20_000])
def test_other_files_are_told_apart(path, header):
    path.write_bytes(header.encode(errors="surrogateescape"))
    with pytest.raises(
        DatasetError, match=r"is not a saved tree, or was written by another version of coding-gym: .* in line 1"
    ):
        load_tree(path)
    assert is_saved_tree(path) == ('"version":2' in header)


def test_directory_and_missing_file_are_no_trees(tmp_path):
    assert not is_saved_tree(tmp_path)
    assert not is_saved_tree(tmp_path / "missing")


def test_unknown_fields_are_ignored(path, lines):
    lines[1] = json.dumps(json.loads(lines[1]) | {"tokens": 3})
    path.write_text("\n".join(lines))
    assert len(load_tree(path)) == 4


def test_failed_save_keeps_the_file(tree, path, monkeypatch):
    tree.save(path)
    tree.root.info["outcome"] = Unprintable()
    with pytest.raises(OSError, match="no text"):
        tree.save(path)
    assert len(load_tree(path)) == 1
    assert list(path.parent.iterdir()) == [path]


class Unprintable:
    def __str__(self):
        raise OSError("no text")


def test_ten_thousand_nodes_load_quickly(path):
    env = Replies()
    env.reset()
    env.reply = {"observation": printed("line\n" * 20), "info": {"outcome": "ok"}}
    with BranchTree(env, max_snapshots=1) as tree:
        # A chain as deep as the tree, of which recursion would run out, and a broad level.
        node = tree.root
        for number in range(9_999):
            child = tree.expand(tree.root if number % 2 else node, f"step({number})")
            node = node if number % 2 else child
    tree.save(path)
    begun = time.process_time()
    saved = load_tree(path)
    assert time.process_time() - begun < 20
    assert len(saved) == 10_000
    assert max(node.depth for node in saved) == 5_000
    deepest = max(saved, key=lambda node: node.depth)
    assert [node.depth for node in saved.path(deepest)] == list(range(5_001))
