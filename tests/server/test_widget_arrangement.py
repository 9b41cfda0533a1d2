"""What the server makes of the widgets that a worker reports, which user code can forge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coding_gym_server.protocol import MAX_WIDGET_CHARS, MAX_WIDGETS, Widget, Window
from coding_gym_server.server.supervisor.widgets import arrange

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 120)
WIDGETS = st.builds(
    Widget,
    id=NUMBERS,
    role=st.text(max_size=50),
    x=NUMBERS,
    y=NUMBERS,
    width=NUMBERS,
    height=NUMBERS,
    name=st.text(max_size=5) | st.just("n" * 5000),
    value=st.none() | st.just("v" * 5000),
    parent=st.none() | NUMBERS,
    window=st.none() | NUMBERS,
    toolkit=st.text(max_size=50),
)
WINDOWS = [
    Window(id=1, title="Below", x=0, y=0, width=100, height=100, stacking=0),
    Window(id=2, title="Above", x=50, y=50, width=100, height=100, stacking=1),
]


def widget(number, x, y, width=10, height=10, **fields):
    return Widget(id=number, role="button", x=x, y=y, width=width, height=height, **fields)


@given(st.lists(WIDGETS, max_size=20))
def test_forged_reports_become_valid_trees(reported):
    arranged = arrange(reported, WINDOWS)
    for number, found in enumerate(arranged):
        assert found.id == number
        assert found.parent is None or 0 <= found.parent < number
        assert found.window in (None, 1, 2)
        assert max(map(abs, (found.x, found.y, found.width, found.height))) < 2**14
        assert min(found.width, found.height) >= 0
        assert max(len(found.name), len(found.value or "")) <= MAX_WIDGET_CHARS
        assert max(len(found.role), len(found.toolkit)) <= 32
    assert {1, 2} <= {found.window for found in arranged}


def test_long_reports_are_truncated():
    assert len(arrange([widget(0, 0, 0)] * (MAX_WIDGETS + 100), WINDOWS)) == MAX_WIDGETS


def test_widgets_belong_to_windows_and_may_be_covered():
    reported = [widget(0, 0, 0, 100, 100), widget(1, 80, 80, parent=0), widget(2, 5, 5, parent=0)]
    arranged = arrange(reported, WINDOWS)
    assert [(found.window, found.covered) for found in arranged] == [(1, True), (1, True), (1, False), (2, False)]
    assert (arranged[3].role, arranged[3].name, arranged[3].parent) == ("window", "Above", None)


def test_positions_relative_to_windows_are_translated():
    (found, *_) = arrange([widget(0, 3, 4, window=2)], WINDOWS)
    assert (found.x, found.y, found.window) == (53, 54, 2)
