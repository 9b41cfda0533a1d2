from __future__ import annotations

import msgspec
import numpy as np
import pytest

from coding_gym import inputs
from coding_gym.errors import InvalidActionError
from coding_gym_server.protocol import InputEvent


def test_events_have_documented_wire_format():
    events = [
        inputs.move(1, 2),
        inputs.click(1, 2),
        inputs.click(1, 2, button="right"),
        inputs.double_click(1, 2),
        inputs.drag(1, 2, 3, 4, button="middle"),
        inputs.scroll(1, 2, dy=-3),
        inputs.mouse_down(),
        inputs.mouse_up("right"),
        inputs.key("ctrl+s"),
        inputs.key_down("a"),
        inputs.key_up("a"),
        inputs.text("h\u00e9\n"),
        inputs.wait(0.5),
    ]
    assert [msgspec.to_builtins(event) for event in events] == [
        {"type": "move", "x": 1, "y": 2},
        {"type": "click", "x": 1, "y": 2},
        {"type": "click", "x": 1, "y": 2, "button": "right"},
        {"type": "double_click", "x": 1, "y": 2},
        {"type": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4, "button": "middle"},
        {"type": "scroll", "x": 1, "y": 2, "dy": -3},
        {"type": "mouse_down"},
        {"type": "mouse_up", "button": "right"},
        {"type": "key", "key": "ctrl+s"},
        {"type": "key_down", "key": "a"},
        {"type": "key_up", "key": "a"},
        {"type": "text", "text": "h\u00e9\n"},
        {"type": "wait", "seconds": 0.5},
    ]
    kinds = {type(event) for event in events}
    assert kinds == set(InputEvent.__args__)


def test_numpy_numbers_and_mappings_become_events():
    expected = inputs.click(3, 4)
    assert inputs.click(np.int64(3), np.uint8(4)) == expected
    assert inputs.as_event({"type": "click", "x": 3, "y": np.int32(4)}) == expected
    assert type(inputs.click(np.int64(3), 4).x) is int
    assert inputs.key(np.str_("Return")) == inputs.key("Return")
    assert inputs.wait(np.float32(0.5)) == inputs.wait(0.5)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: inputs.click(-1, 2),
        lambda: inputs.click(1.5, 2),
        lambda: inputs.click(4096, 2),
        lambda: inputs.click("1", 2),
        lambda: inputs.click(None, 2),
        lambda: inputs.click(10**30, 2),
        lambda: inputs.click(1, 2, button="primary"),
        lambda: inputs.click(np.zeros(2), 2),
        lambda: inputs.scroll(1, 2, dy=1000),
        lambda: inputs.key(""),
        lambda: inputs.key("x" * 101),
        lambda: inputs.text("\ud800"),
        lambda: inputs.text("x" * 10_001),
        lambda: inputs.wait(-1),
        lambda: inputs.wait(61),
        lambda: inputs.wait(float("nan")),
        lambda: inputs.as_event(None),
        lambda: inputs.as_event("click"),
        lambda: inputs.as_event([1, 2]),
        lambda: inputs.as_event({"type": "push", "x": 1, "y": 2}),
        lambda: inputs.as_event({"type": "click", "x": 1}),
        lambda: inputs.as_event({"type": "click", "x": 1, "y": 2, "z": 3}),
        lambda: inputs.as_event({1: 2}),
        lambda: inputs.as_event(object()),
    ],
)
def test_invalid_event_is_refused(bad):
    with pytest.raises(InvalidActionError, match=r"Expected an input event such as inputs\.click\(10, 20\), got "):
        bad()
