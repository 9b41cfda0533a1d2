from __future__ import annotations

import pytest

from coding_gym_server.display.drawing_monitor import DrawingMonitor


@pytest.mark.parametrize(
    ("interval", "expected"), [(0.02, [2.0, 4.0, 6.0]), (1.0, [2.0, 4.0, 6.0]), (2.0, [2.0, 4.0, 6.0]), (2.6, []), (3.0, [])]
)
def test_continuous_drawing_is_reported_periodically(interval, expected):
    monitor = DrawingMonitor(2.0)
    times = [n * interval for n in range(int(6.5 / interval) + 1)]
    assert [time for time in times if monitor.note_change(time)] == pytest.approx(expected, abs=interval)


def test_restart_and_missing_limit_prevent_reports():
    monitor = DrawingMonitor(1.0)
    assert not monitor.note_change(0.0)
    monitor.restart()
    assert not monitor.note_change(1.5)
    assert monitor.note_change(2.5)
    assert not any(DrawingMonitor(None).note_change(n) for n in range(100))
