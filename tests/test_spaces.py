from __future__ import annotations

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, create_shared_memory, iterate

from coding_gym import CodeText
from coding_gym.spaces import action_space, observation_space


@pytest.mark.parametrize("text", ["", "x", "x" * 20, "π = 3", "🎉" * 20, "\t\n\r\0\x1b", "\ufffd\U0010ffff", np.str_("x")])
def test_contains_any_unicode(text):
    assert text in CodeText(20)


@pytest.mark.parametrize("value", ["x" * 21, "🎉" * 21, "\ud800", "ab\udfff", b"x", 1, None, ["x"], ("x",), np.array("x")])
def test_does_not_contain_invalid_values(value):
    assert value not in CodeText(20)


def test_length_counts_code_points():
    assert "é" * 10 in CodeText(10)
    assert "é" * 11 not in CodeText(10)


def test_min_length_is_enforced():
    space = CodeText(10, min_length=2)
    assert "" not in space
    assert "x" not in space
    assert "xy" in space


@pytest.mark.parametrize(("low", "high"), [(-1, 5), (6, 5)])
def test_impossible_lengths_are_refused(low, high):
    with pytest.raises(ValueError, match="length"):
        CodeText(high, min_length=low)


def test_samples_are_contained_and_look_like_code():
    space = CodeText(1000, seed=0)
    samples = [space.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    assert len(set(samples)) > 8
    assert any("print" in sample for sample in samples)


def test_samples_are_reproducible_with_seed():
    first, second, other = CodeText(1000, seed=3), CodeText(1000), CodeText(1000, seed=4)
    second.seed(3)
    draws = [[space.sample() for _ in range(30)] for space in (first, second, other)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (1, 1), (3, 3), (0, 5), (1, 6), (90, 100)])
def test_samples_of_narrow_spaces_are_contained(low, high):
    space = CodeText(high, min_length=low, seed=0)
    assert all(space.sample() in space for _ in range(50))


def test_sample_with_mask_uses_only_its_characters():
    space = CodeText(10, seed=0)
    mask = np.zeros(len(space.character_set), np.int8)
    mask[space.character_index("a")] = mask[space.character_index("b")] = 1
    for _ in range(20):
        sample = space.sample(mask=(5, mask))
        assert len(sample) == 5
        assert set(sample) <= {"a", "b"}


def test_sample_with_probabilities_follows_them():
    space = CodeText(10, seed=0)
    probability = np.zeros(len(space.character_set))
    probability[space.character_index("z")] = 1
    assert space.sample(probability=(4, probability)) == "zzzz"


def test_sample_with_mask_and_probability_is_refused():
    with pytest.raises(ValueError, match="Only one"):
        CodeText(10).sample(mask=(1, None), probability=(1, None))


def test_equality_depends_on_lengths():
    assert CodeText(10) == CodeText(10, seed=1)
    assert CodeText(10) != CodeText(11)
    assert CodeText(10) != CodeText(10, min_length=1)
    assert CodeText(10) != spaces.Text(10, min_length=0)
    assert spaces.Text(10, min_length=0) != CodeText(10)
    assert CodeText(10) != "CodeText(0, 10)"


def test_space_is_unhashable_like_gymnasium_text():
    with pytest.raises(TypeError, match="unhashable"):
        hash(CodeText(10))


def test_repr_shows_lengths_only():
    assert repr(CodeText(10, min_length=2)) == "CodeText(2, 10)"
    assert len(repr(observation_space(16_384, (640, 480)))) < 500


def test_pickle_and_copy_keep_sampler_state():
    space = CodeText(1000, min_length=1, seed=7)
    space.sample()
    twins = [pickle.loads(pickle.dumps(space)), copy.deepcopy(space)]
    draws = [space.sample() for _ in range(10)]
    for twin in twins:
        assert type(twin) is CodeText
        assert twin == space
        assert [twin.sample() for _ in range(10)] == draws
    assert len(pickle.dumps(space)) < 20_000


def test_batch_space_is_tuple_of_independent_spaces():
    batch = batch_space(CodeText(1000, seed=0), 4)
    assert isinstance(batch, spaces.Tuple)
    assert all(isinstance(space, CodeText) for space in batch.spaces)
    batch.seed(1)
    first = [batch.sample() for _ in range(10)]
    batch.seed(1)
    assert [batch.sample() for _ in range(10)] == first
    assert len(set(map(len, map(set, first)))) > 1
    assert ("é", "", "x", "y") in batch


def test_iterate_and_concatenate_support_code_text():
    space = CodeText(10)
    assert list(iterate(batch_space(space, 2), ("é", ""))) == ["é", ""]
    assert concatenate(space, ("é", ""), create_empty_array(space, 2)) == ("é", "")


def test_flatten_supports_only_letters_and_digits():
    # Gymnasium flattens text to indices into a charset; one that covers all source text would be too large.
    space = CodeText(5)
    assert spaces.flatdim(space) == 5
    assert spaces.unflatten(space, spaces.flatten(space, "ab1")) == "ab1"
    with pytest.raises(KeyError, match="é"):
        spaces.flatten(space, "é")


@pytest.mark.parametrize("context", [multiprocessing, multiprocessing.get_context("spawn")])
def test_shared_memory_is_refused_with_hint(context):
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        create_shared_memory(CodeText(10), 2, context)
    with pytest.raises(CustomSpaceError, match="make_vec"):
        create_shared_memory(observation_space(256, None), 2, context)


def test_shared_memory_of_gymnasium_text_still_works():
    create_shared_memory(spaces.Text(10), 2, multiprocessing)


def test_action_space_is_code_text():
    assert action_space(77) == CodeText(77)


def test_observation_space_with_screen():
    space = observation_space(300, (320, 240))
    assert list(space.keys()) == ["exit_code", "screenshot", "stderr", "stdout"] or set(space.keys()) == {
        "stdout",
        "stderr",
        "exit_code",
        "screenshot",
    }
    assert space["stdout"] == space["stderr"] == CodeText(300)
    assert space["exit_code"] == spaces.Discrete(256)
    assert space["screenshot"] == spaces.Box(0, 255, (240, 320, 3), np.uint8)
    assert space.sample() in space


def test_observation_space_without_screen():
    assert set(observation_space(300, None).keys()) == {"stdout", "stderr", "exit_code"}


def test_docstring_example_is_correct():
    import doctest

    import coding_gym.spaces

    assert doctest.testmod(coding_gym.spaces).failed == 0
