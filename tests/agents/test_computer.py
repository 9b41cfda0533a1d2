"""Computer use: actions of OpenAI's and Anthropic's models on a screen."""

from __future__ import annotations

import base64
import io
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from coding_gym.agents import Computer
from coding_gym.errors import ConfigurationError

pytestmark = pytest.mark.screen

PROGRAM = """
import tkinter as tk

log = open("events.txt", "w", buffering=1)
window = tk.Tk()
window.geometry("400x300+0+0")
canvas = tk.Canvas(window, width=400, height=300, background="#204080", highlightthickness=0)
canvas.place(x=0, y=0)
canvas.create_rectangle(300, 200, 400, 300, fill="#f0f000", width=0)

def write(kind):
    return lambda event: print(kind, event.x, event.y, event.state & 5, file=log)

for number in (1, 2, 3):
    canvas.bind(f"<Button-{number}>", write(f"press{number}"))
    canvas.bind(f"<ButtonRelease-{number}>", write(f"release{number}"))
canvas.bind("<Double-Button-1>", write("double"))
canvas.bind("<Triple-Button-1>", write("triple"))
for number, name in ((4, "up"), (5, "down"), (6, "left"), (7, "right")):
    try:
        canvas.bind(f"<Button-{number}>", write(name))
    except tk.TclError:
        pass
canvas.bind("<B1-Motion>", write("drag"))
window.bind("<Key>", lambda event: print("key", event.keysym, event.state & 12, file=log))
window.bind("<KeyRelease>", lambda event: print("key-up", event.keysym, file=log))
window.mainloop()
"""


@pytest.fixture(scope="module")
def gui(xvfb):
    options = {"provider": "local", "preload": (), "screen": (400, 300), "step_timeout": 20, "settle": 0.2}
    with closing(gym.make("CodingEnvGUI-v0", **options)) as env:
        yield env


@pytest.fixture
def env(gui):
    gui.reset(seed=1)
    gui.step({"code": PROGRAM, "events": []})
    return gui


@pytest.fixture
def log(env):
    """Function that returns the events since the last call."""
    read = []

    def new():
        lines = env.unwrapped.files.read_text("events.txt").splitlines()
        found, read[:] = lines[len(read) :], lines
        return found

    return new


def image_of(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


def openai(computer, *actions, **more):
    answer = computer.answer_openai({"type": "computer_call", "call_id": "c1", "actions": list(actions), **more})
    assert (answer["type"], answer["call_id"]) == ("computer_call_output", "c1")
    prefix = "data:image/png;base64,"
    assert answer["output"]["image_url"].startswith(prefix)
    return image_of(answer["output"]["image_url"].removeprefix(prefix))


def anthropic(computer, action, **more):
    answer = computer.answer_anthropic(
        {"type": "tool_use", "id": "t1", "name": "computer", "input": {"action": action, **more}}
    )
    assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "t1")
    (content,) = answer["content"]
    if content["type"] == "text":
        return content["text"]
    assert "is_error" not in answer
    return image_of(content["source"]["data"])


def at(x, y):
    return {"x": x, "y": y}


def test_actions_of_openai(env, log):
    computer = Computer(env)
    picture = openai(computer, {"type": "screenshot"})
    assert picture.shape == (300, 400, 3)
    assert tuple(picture[10, 10]) == (0x20, 0x40, 0x80)
    openai(computer, {"type": "click", "button": "left", **at(10, 20)})
    assert log() == ["press1 10 20 0", "release1 10 20 0"]
    openai(computer, {"type": "click", "button": "right", **at(11, 21)}, {"type": "click", "button": "wheel", **at(12, 22)})
    assert [line.split()[0] for line in log()] == ["press3", "release3", "press2", "release2"]
    openai(computer, {"type": "click", "button": "left", "keys": ["CTRL", "SHIFT"], **at(30, 30)})
    assert "press1 30 30 5" in log()
    openai(computer, {"type": "double_click", **at(40, 40)})
    assert "double 40 40 0" in log()
    openai(computer, {"type": "drag", "path": [at(5, 5), at(50, 60), at(100, 110)]})
    lines = log()
    assert (lines[0], lines[-1]) == ("press1 5 5 0", "release1 100 110 0")
    assert any(line.startswith("drag 50 60") for line in lines)
    openai(computer, {"type": "keypress", "keys": ["CTRL", "A"]}, {"type": "keypress", "keys": ["ENTER"]})
    lines = log()
    assert "key a 4" in lines
    assert "key Return 0" in lines
    openai(computer, {"type": "type", "text": "h\N{LATIN SMALL LETTER E WITH ACUTE}"})
    assert [line for line in log() if line.startswith("key ")] == ["key h 0", "key eacute 0"]
    openai(computer, {"type": "scroll", "scroll_x": 0, "scroll_y": 250, **at(60, 60)})
    assert [line for line in log() if line.startswith(("down", "up"))] == ["down 60 60 0"] * 2
    openai(computer, {"type": "scroll", "scroll_x": 0, "scroll_y": -10, **at(60, 60)})
    assert [line for line in log() if line.startswith(("down", "up"))] == ["up 60 60 0"]
    openai(computer, {"type": "move", **at(70, 70)}, {"type": "wait"})
    openai(computer, {"type": "click", "button": "back", **at(0, 0)})
    assert "key Left 8" in log()
    assert computer.problem == ""


def test_one_action_and_safety_checks(env, log):
    computer = Computer(env)
    check = {"id": "s1", "code": "malicious", "message": "careful"}
    answer = computer.answer_openai(
        {"call_id": "c", "action": {"type": "click", "button": "left", **at(1, 2)}, "pending_safety_checks": [check]}
    )
    assert answer["acknowledged_safety_checks"] == [check]
    assert log()[0] == "press1 1 2 0"


def test_actions_of_anthropic(env, log):
    computer = Computer(env)
    assert anthropic(computer, "screenshot").shape == (300, 400, 3)
    assert anthropic(computer, "cursor_position") == "X=200,Y=150"
    anthropic(computer, "left_click", coordinate=[10, 20])
    assert log() == ["press1 10 20 0", "release1 10 20 0"]
    assert anthropic(computer, "cursor_position") == "X=10,Y=20"
    anthropic(computer, "left_click", coordinate=[110, 20], text="shift")
    assert "press1 110 20 1" in log()
    anthropic(computer, "right_click")
    anthropic(computer, "middle_click", coordinate=[9, 9])
    assert [line.split()[0] for line in log() if line.startswith("press")] == ["press3", "press2"]
    anthropic(computer, "double_click", coordinate=[40, 40])
    assert "double 40 40 0" in log()
    anthropic(computer, "triple_click", coordinate=[80, 80])
    assert "triple 80 80 0" in log()
    anthropic(computer, "left_click_drag", start_coordinate=[5, 5], coordinate=[100, 110])
    lines = log()
    assert (lines[0], lines[-1]) == ("press1 5 5 0", "release1 100 110 0")
    anthropic(computer, "mouse_move", coordinate=[20, 20])
    anthropic(computer, "left_mouse_down")
    anthropic(computer, "mouse_move", coordinate=[30, 40])
    anthropic(computer, "left_mouse_up")
    lines = log()
    assert (lines[0], lines[-1]) == ("press1 20 20 0", "release1 30 40 0")
    anthropic(computer, "key", text="ctrl+s")
    anthropic(computer, "key", text="Down", repeat=3)
    lines = [line for line in log() if line.startswith("key ")]
    assert "key s 4" in lines
    assert lines.count("key Down 0") == 3
    anthropic(computer, "type", text="ab")
    anthropic(computer, "hold_key", text="x", duration=1)
    # A key that is held repeats itself.
    lines = [line for line in log() if line.startswith("key ")]
    assert lines[:3] == ["key a 0", "key b 0", "key x 0"]
    assert set(lines[3:]) <= {"key x 0"}
    anthropic(computer, "scroll", coordinate=[60, 60], scroll_direction="down", scroll_amount=3)
    assert [line for line in log() if line.startswith("down")] == ["down 60 60 0"] * 3
    anthropic(computer, "wait", duration=1)
    zoomed = anthropic(computer, "zoom", region=[300, 200, 400, 300])
    assert zoomed.shape == (300, 400, 3)
    assert tuple(zoomed[150, 200]) == (0xF0, 0xF0, 0)
    # A zoom moves no pointer.
    assert anthropic(computer, "cursor_position") == "X=60,Y=60"


def test_toolset_of_anthropic(env, log):
    computer = Computer(env)
    block = {"type": "tool_use", "id": "t", "name": "left_click", "toolset_name": "computer", "input": {"coordinate": [7, 8]}}
    assert computer.answer_anthropic(block)["content"][0]["type"] == "image"
    assert log()[0] == "press1 7 8 0"
    assert computer.anthropic_toolset == {"type": "computer_toolset_20260801"}


def test_pictures_of_another_size(env, log):
    computer = Computer(env, size=(200, 150))
    assert anthropic(computer, "screenshot").shape == (150, 200, 3)
    anthropic(computer, "left_click", coordinate=[199, 149])
    assert log()[0] == "press1 399 299 0"
    assert computer.anthropic_tool["display_width_px"] == 200
    assert tuple(anthropic(computer, "zoom", region=[150, 100, 200, 150])[75, 100]) == (0xF0, 0xF0, 0)
    big = Computer(env, size=(800, 600))
    anthropic(big, "left_click", coordinate=[799, 1])
    assert log()[0] == "press1 399 0 0"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"action": "left_click", "coordinate": [400, 10]}, "the point (400, 10) is not in the picture, which is 400 x 300"),
        ({"action": "left_click", "coordinate": "middle"}, "is not a point"),
        ({"action": "left_click", "coordinate": [1, 2, 3]}, "is not a point"),
        ({"action": "mouse_move"}, "mouse_move requires a coordinate"),
        ({"action": "key", "text": "nokey"}, "unknown key 'nokey'"),
        ({"action": "key", "text": None}, "the text is not a string"),
        ({"action": "key", "text": "a", "repeat": 1000}, "expected a number from 1 to 100"),
        ({"action": "wait", "duration": "long"}, "expected a number from 0 to 60"),
        (
            {"action": "scroll", "coordinate": [1, 1], "scroll_direction": "in", "scroll_amount": 1},
            "scroll_direction is one of",
        ),
        ({"action": "zoom", "region": [0, 0, 500, 10]}, "the corner (500, 10) is not in the picture"),
        ({"action": "zoom", "region": [10, 10, 10, 10]}, "the region is empty"),
        ({"action": "zoom"}, "the region is not (x0, y0, x1, y1)"),
        ({"action": "fly"}, "unknown action 'fly'"),
        ({}, "unknown action None"),
    ],
)
def test_mistakes_are_answered(env, log, action, message):
    computer = Computer(env)
    answer = computer.answer_anthropic({"id": "t1", "name": "computer", "input": action})
    assert answer["is_error"]
    assert message in answer["content"][0]["text"]
    assert log() == []
    assert anthropic(computer, "cursor_position") == "X=200,Y=150"


def test_mistake_of_openai_performs_nothing(env, log):
    computer = Computer(env)
    picture = openai(
        computer, {"type": "click", "button": "left", **at(1, 1)}, {"type": "click", "button": "left", **at(-1, 1)}
    )
    assert picture.shape == (300, 400, 3)
    assert "the point (-1, 1) is not in the picture" in computer.problem
    assert log() == []
    for action in ({"type": "keypress", "keys": ["NOKEY"]}, {"type": "drag", "path": []}, {"type": "fly"}, {}):
        openai(computer, action)
        assert computer.problem.startswith("Nothing was performed")
    assert log() == []


def test_objects_of_the_sdks(env, log):
    types = pytest.importorskip("openai.types.responses")
    call = types.ResponseComputerToolCall.model_validate(
        {
            "id": "i",
            "call_id": "c",
            "type": "computer_call",
            "status": "completed",
            "pending_safety_checks": [],
            "actions": [{"type": "click", "button": "left", **at(3, 4)}],
        }
    )
    computer = Computer(env)
    assert computer.answer_openai(call)["call_id"] == "c"
    assert log()[0] == "press1 3 4 0"


def test_misuse(env):
    with pytest.raises(ConfigurationError, match="Expected a CodingEnvGUI"):
        Computer(gym.make("CodingEnv-v0", provider="local"))
    for size in ((0, 1), (1.5, 2), (1,), "big"):
        with pytest.raises(ConfigurationError, match="Expected size="):
            Computer(env, size=size)
