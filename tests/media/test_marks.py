from __future__ import annotations

import numpy as np

from coding_gym import Widget, format_widgets, mark_widgets

GREY = np.full((60, 100, 3), 128, np.uint8)


def widget(number, x, y, role="button", **states):
    return Widget(id=number, role=role, x=x, y=y, width=20, height=10, **states)


def test_boxes_are_drawn_around_usable_widgets():
    frame = GREY.copy()
    widgets = [
        widget(0, 40, 20),
        widget(1, 10, 40, role="label"),
        widget(2, 70, 40, enabled=False),
        widget(3, 70, 5, covered=True),
    ]
    marked = mark_widgets(frame, widgets)
    assert marked.widgets == {1: widgets[0]}
    assert (frame == 128).all()
    changed = (marked.image != 128).any(axis=2)
    assert changed[20, 40:60].all()
    assert changed[20:30, 40].all()
    # The widget itself can be seen.
    assert not changed[22:28, 42:58].any()
    assert not changed[:, 70:].any()


def test_widgets_beyond_the_screen_are_clipped_or_left_out():
    marked = mark_widgets(GREY, [widget(0, 95, 55), widget(1, 200, 0), widget(2, -50, -50), widget(3, -5, -5)])
    assert [found.id for found in marked.widgets.values()] == [0, 3]
    assert marked.image.shape == GREY.shape


def test_roles_choose_what_is_marked():
    widgets = [widget(0, 10, 10), widget(1, 40, 10, role="label")]
    assert [found.id for found in mark_widgets(GREY, widgets, roles={"label"}).widgets.values()] == [1]


def test_tree_is_formatted_with_states():
    widgets = [
        widget(0, 0, 0, role="window", name="It's"),
        widget(1, 1, 2, role="group", parent=0),
        widget(2, 3, 4, role="checkbox", name="Yes", checked=False, parent=1, enabled=False),
        widget(3, 5, 6, role="textbox", value="", parent=0, focused=True),
    ]
    assert format_widgets(widgets).splitlines() == [
        '[0] window "It\'s" (0, 0, 20, 10)',
        "  [1] group (1, 2, 20, 10)",
        "    [2] checkbox 'Yes' disabled unchecked (3, 4, 20, 10)",
        "  [3] textbox value='' focused (5, 6, 20, 10)",
    ]
