from __future__ import annotations

import re


def test_first_come_training_makes_more_steps_and_learns(run_example):
    code, printed = run_example("async_rollouts.py", "--seconds", 8)
    assert code is None, printed
    lines = re.findall(r"^(\S+) +(\d+) +\d+ +(\d+)% +(\d+)%$", printed, re.M)
    rows = {name: tuple(map(int, figures)) for name, *figures in lines}
    assert rows.keys() == {"lock-step", "first-come"}
    assert rows["first-come"][0] > 3 * rows["lock-step"][0] > 0
    _, at_first, at_last = rows["first-come"]
    assert at_last > 60 > at_first
