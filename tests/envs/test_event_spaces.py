from __future__ import annotations

import json
import pickle

import pytest

from coding_gym import inputs
from coding_gym.envs.event_spaces import EventSequenceSpace, EventSpace
from coding_gym.errors import InvalidActionError
from coding_gym_server.protocol import InputEvent


def test_events_outside_screen_are_refused():
    space = EventSpace(64, 48)
    assert inputs.click(63, 47) in space
    assert inputs.key("Return") in space
    assert {"type": "move", "x": 0, "y": 0} in space
    for event in (inputs.click(64, 0), inputs.move(0, 48), inputs.drag(0, 0, 64, 0), inputs.scroll(0, 48, dy=1)):
        assert event not in space
    with pytest.raises(InvalidActionError, match="Expected to_y of 0 to 47 on a screen of 64 x 48, got Drag"):
        space.check(inputs.drag(0, 0, 1, 48))


def test_samples_cover_all_kinds_and_are_reproducible():
    space = EventSpace(17, 16, seed=0)
    samples = [space.sample() for _ in range(400)]
    assert all(sample in space for sample in samples)
    assert {type(sample) for sample in samples} == set(InputEvent.__args__)
    space.seed(0)
    assert [space.sample() for _ in range(400)] == samples
    with pytest.raises(ValueError, match="mask=None and probability=None"):
        space.sample(mask=1)


def test_sequence_space_accepts_lists_and_tuples():
    space = EventSequenceSpace(64, 48, max_length=3)
    click = inputs.click(1, 2)
    for events in ([], (), [click], (click,) * 3, [click, {"type": "key", "key": "a"}]):
        assert events in space
    for events in (None, click, "click", {}, [click] * 4, [None], [inputs.click(64, 0)], iter([click])):
        assert events not in space
    with pytest.raises(InvalidActionError, match="Expected at most 3 events, got 4"):
        space.check([click] * 4)


def test_sampled_sequences_respect_length_and_seed():
    space = EventSequenceSpace(64, 48, max_length=3, seed=1)
    samples = [space.sample() for _ in range(100)]
    assert all(sample in space for sample in samples)
    assert {len(sample) for sample in samples} == {1, 2, 3}
    assert len(space.sample(mask=(2, None))) == 2
    assert space.sample(mask=(0, None)) == ()
    space.seed(1)
    assert [space.sample() for _ in range(100)] == samples


@pytest.mark.parametrize("space", [EventSpace(64, 48, seed=1), EventSequenceSpace(64, 48, seed=1)], ids=repr)
def test_spaces_support_equality_pickle_json_and_repr(space):
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert again.sample() == space.sample()
    assert space != type(space)(48, 64)
    assert space != 1
    assert repr(space).startswith(f"{type(space).__name__}(64, 48")
    samples = [space.sample() for _ in range(20)]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples)))) == samples


def test_max_length_is_part_of_space_equality():
    assert EventSequenceSpace(64, 48, max_length=3) != EventSequenceSpace(64, 48, max_length=4)
