"""Where windows appear without a window manager, on the default screen."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import pytest

pytestmark = pytest.mark.usefixtures("xvfb")


@pytest.fixture
def boxes(pool):
    """Function that runs code, and returns the boxes of its windows by their titles."""
    with closing(gym.make("CodingEnv-v0", pool=pool, on_idle="return", disable_env_checker=True).unwrapped) as env:

        def boxes(code):
            env.reset(seed=1)
            obs, *_ = env.step(code)
            assert obs["stderr"] == ""
            return {window.title: (window.x, window.y, window.width, window.height) for window in env.windows()}

        yield boxes


def is_whole(box):
    x, y, width, height = box
    return 0 <= x < x + width <= 800 and 0 <= y < y + height <= 600


def test_figures_are_whole_and_hide_none(boxes):
    found = boxes("import matplotlib.pyplot as plt\nfor n in range(4): plt.figure()\nplt.show()")
    assert len(found) == 4
    assert len({box[:2] for box in found.values()}) == 4
    assert all(map(is_whole, found.values()))


def test_windows_without_position_lie_side_by_side(boxes):
    found = boxes(
        "import tkinter as tk\nroot = tk.Tk()\nroot.title('1')\n"
        "others = [tk.Toplevel(root, width=100, height=80) for _ in range(3)]\n"
        "root.geometry('100x80')\nfor n, other in enumerate(others): other.title(str(n + 2))\nroot.update()"
    )
    assert sorted(found.values()) == [(0, 0, 100, 80), (100, 0, 100, 80), (200, 0, 100, 80), (300, 0, 100, 80)]


def test_requested_positions_are_kept(boxes):
    found = boxes(
        "import tkinter as tk\nroot = tk.Tk()\nroot.geometry('100x80+10+20')\nroot.title('below')\nroot.update()\n"
        "top = tk.Toplevel(root)\ntop.geometry('200x200+0+0')\ntop.title('above')\nroot.update()\n"
        "menu = tk.Menu(root)\nmenu.add_command(label='x' * 80)\n"
        "bare = tk.Toplevel(root, width=300, height=300)\nbare.title('bare')\nbare.overrideredirect(True)\nroot.update()"
    )
    assert (found["below"], found["above"], found["bare"]) == ((10, 20, 100, 80), (0, 0, 200, 200), (0, 0, 300, 300))


def test_programs_can_move_windows_later(boxes):
    found = boxes(
        "import tkinter as tk\nroot = tk.Tk()\nroot.geometry('100x80')\nroot.title('a')\nroot.update()\n"
        "top = tk.Toplevel(root, width=100, height=80)\ntop.title('b')\nroot.update()\n"
        "assert (top.winfo_rootx(), top.winfo_rooty()) == (100, 0), top.winfo_rootx()\n"
        "top.withdraw()\ntop.geometry('+0+0')\ntop.deiconify()\nroot.update()"
    )
    assert (found["a"][:2], found["b"][:2]) == ((0, 0), (0, 0))


def test_turtle_is_shown_whole(boxes):
    assert all(map(is_whole, boxes("import turtle\nturtle.forward(1)").values()))
