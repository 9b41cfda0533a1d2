"""Placement of windows without a window manager."""

from __future__ import annotations

import pytest

from coding_gym_server.display.placement import choose_position
from coding_gym_server.protocol import Rectangle

SCREEN = (800, 600)


@pytest.mark.parametrize(
    ("window", "others", "expected"),
    [
        ((0, 0, 200, 100), [], (0, 0)),
        ((0, 0, 200, 100), [(300, 0, 200, 100)], (0, 0)),
        # Neither hides the other.
        ((0, 0, 100, 100), [(0, 0, 300, 300)], (0, 0)),
        ((0, 0, 200, 100), [(0, 0, 200, 100)], (200, 0)),
        ((10, 10, 300, 300), [(20, 20, 50, 50)], (70, 0)),
        ((0, 0, 200, 100), [(0, 0, 200, 100), (200, 0, 200, 100)], (400, 0)),
        ((0, 0, 640, 527), [(0, 0, 667, 550)], (128, 46)),
        # There is no place where it hides nothing: beyond the edge.
        ((0, 0, 800, 600), [(0, 0, 800, 600)], (24, 24)),
        ((0, 0, 900, 700), [(0, 0, 900, 700), (24, 24, 900, 700)], (48, 48)),
    ],
)
def test_new_windows_hide_no_other(window, others, expected):
    assert choose_position(Rectangle(*window), [Rectangle(*other) for other in others], SCREEN) == expected
