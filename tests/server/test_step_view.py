from __future__ import annotations

import pytest

from coding_gym_server.server.sessions.step_view import watch_limit


@pytest.mark.parametrize(
    ("wall", "max_watch", "expected"), [(2, None, 1), (60, None, 30), (60, 5, 5), (60, 59.5, 57), (2, 2, 1), (2, 0.5, 0.5)]
)
def test_animation_is_closed_before_its_time_is_over(wall, max_watch, expected):
    assert watch_limit(wall, max_watch) == expected
