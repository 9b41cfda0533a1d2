"""Messages made of msgspec's errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from coding_gym import inputs
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.tasks import Task
from coding_gym_server.protocol.errors import reason_of


class _Point(msgspec.Struct, forbid_unknown_fields=True):
    x: Annotated[int, msgspec.Meta(ge=0, le=4095)]
    label: Annotated[str, msgspec.Meta(min_length=1)] = "p"
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        ({"x": 5000}, _Point, "x: expected int <= 4095"),
        ({"x": "1"}, _Point, "x: expected int, got str"),
        ({"x": 1, "label": ""}, _Point, "label: expected str of length >= 1"),
        ({"x": 1, "kind": "c"}, _Point, "kind: invalid enum value 'c'"),
        ({}, _Point, "object missing required field x"),
        ({"x": 1, "y": 2}, _Point, "object contains unknown field y"),
        ([{"x": 1}, {"x": -1}], list[_Point], "[1].x: expected int >= 0"),
        ([], dict, "expected object, got array"),
    ],
)
def test_errors_say_where_and_what(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, kind)
    assert reason_of(caught.value) == reason


def test_other_errors_are_unchanged() -> None:
    assert reason_of(TypeError("`x` is odd - at `$.x`")) == "`x` is odd - at `$.x`"


def test_users_meet_no_path_of_a_decoder() -> None:
    with pytest.raises(InvalidActionError, match=r": x: expected int <= 4095$"):
        inputs.as_event({"type": "click", "x": 5000, "y": 5})
    with pytest.raises(InvalidActionError, match=r": x: expected int <= 4095$"):
        inputs.click(5000, 5)
    with pytest.raises(ConfigurationError, match=r"^Expected the fields of a task: .*id"):
        Task.from_row({"id": 3, "prompt": "", "tests": {"type": "asserts", "cases": ["assert f()"]}})
