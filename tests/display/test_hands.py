from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from coding_gym_server.display.input_injector import InputInjector, UnknownKeyError
from coding_gym_server.display.windows import WindowList
from coding_gym_server.protocol import (
    Click,
    DoubleClick,
    Drag,
    InputEvent,
    Key,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Scroll,
    Text,
    Wait,
)
from tests.display.display_programs import TOOLKITS, Program, window_of
from tests.support.timing import eventually

# Programs that print each line typed; the line "sleep" makes them sleep for half a second.
LINES = {
    "tkinter": """
import time, tkinter
root = tkinter.Tk(); root.title("lines"); entry = tkinter.Entry(root); entry.pack(); entry.focus_set()
def line(event):
    print(repr(entry.get()))
    if entry.get() == "sleep": time.sleep(0.5)
    entry.delete(0, "end")
entry.bind("<Return>", line); root.mainloop()
""",
    "PySide6": """
import time
from PySide6.QtWidgets import QApplication, QLineEdit
app = QApplication([]); entry = QLineEdit(); entry.setWindowTitle("lines")
def line():
    print(repr(entry.text()))
    if entry.text() == "sleep": time.sleep(0.5)
    entry.clear()
entry.returnPressed.connect(line); entry.show(); app.exec()
""",
    "pygame": """
import pygame, time
pygame.display.init(); pygame.display.set_mode((300, 200)); pygame.display.set_caption("lines")
text = ""
while True:
    for event in pygame.event.get():
        if event.type == pygame.TEXTINPUT: text += event.text
        if event.type == pygame.KEYDOWN and event.key == pygame.K_RETURN:
            print(repr(text))
            if text == "sleep": time.sleep(0.5)
            text = ""
    time.sleep(0.005)
""",
}

TEXTS = [
    "The quick brown Fox, 0123456789!",
    "`~!@#$%^&*()-_=+[{]}\\|;:'\",<.>/?",
    "Grüße, Ünïcödé: À É Î ß ñ € £ ¥ ± µ",
    "日本語 русский ελληνικά עברית العربية हिन्दी",
    "\U0001f600\U0001f680 e\u0301 x\u0308 \U0001f468\u200d\U0001f469",
    "".join(chr(0x4E00 + 37 * index) for index in range(150)),
    "sleep",
    "".join(chr(0x6E00 + 11 * index) for index in range(150)),
    "".join("aéZ€漢😀9!"[index * index % 8] for index in range(600)),
]

EVENTS = """
import tkinter
root = tkinter.Tk(); root.title("events"); root.geometry("400x300+20+30")
names = {2: "press", 3: "release", 4: "down", 5: "up", 6: "motion"}
def show(event):
    kind = names[int(event.type)]
    print((kind, event.keysym) if kind in ("press", "release") else (kind, event.num if kind != "motion" else 0,
        event.x_root, event.y_root))
for kind in ("KeyPress", "KeyRelease", "ButtonPress", "ButtonRelease", "Motion"): root.bind(f"<{kind}>", show)
root.bind("<Double-Button-1>", lambda event: print(("double",)))
root.wait_visibility(); print(("shown",))
root.mainloop()
"""

Act = Callable[..., None]


@pytest.fixture
def hands(desktop: WindowList) -> InputInjector:
    return InputInjector(desktop)


@pytest.fixture
def act(desktop: WindowList, hands: InputInjector) -> Act:
    def act(*events: InputEvent) -> None:
        for pause in hands.perform(events):
            time.sleep(pause)
        desktop.sync()

    return act


def start_events(desktop: WindowList, start: Callable[[str], Program]) -> Program:
    """Start the program that prints its events, and wait until its window receives them.

    The frame that Tk puts around a window is listed before the window in it is shown, and Tk calls the handlers of <Map>
    before the X server has been asked to show it. Only the server's own event, <Visibility>, says that it is shown.
    """
    program = start(EVENTS)
    window_of(desktop, "events")
    assert program.read() == ("shown",)
    return program


def read(program: Program, count: int) -> list[object]:
    return [program.read() for _ in range(count)]


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_every_character_arrives(desktop, start, act, toolkit):
    program = start(LINES[toolkit])
    window_of(desktop, "lines")
    act(*(Text(f"{text}\n") for text in TEXTS))
    for text in TEXTS:
        assert program.read() == text


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_new_window_gets_keyboard_focus(desktop, start, act, toolkit):
    act(Move(639, 479))
    program = start(LINES[toolkit])
    window_of(desktop, "lines")
    act(Text("a"), Key("B"), Key("+"), Key("enter"))
    assert program.read() == "aB+"


def test_focus_follows_dialogs_and_clicks(desktop, start, act):
    program = start("""
import tkinter
root = tkinter.Tk(); root.title("below"); root.geometry("300x300+0+0")
def dialog():
    top = tkinter.Toplevel(root); top.title("above"); top.geometry("100x100+350+0")
    top.bind("<Key>", lambda event: print(("above", event.keysym)))
button = tkinter.Button(root, text="open", command=dialog, width=20, height=5); button.pack()
root.bind("<Key>", lambda event: event.widget is root and print(("below", event.keysym)))
root.mainloop()
""")
    window_of(desktop, "below")
    act(Key("a"))
    assert program.read() == ("below", "a")
    act(Click(150, 30))
    window_of(desktop, "above")
    act(Key("b"))
    assert program.read() == ("above", "b")
    act(Click(150, 250), Key("c"))
    assert program.read() == ("below", "c")
    act(Key("d"))
    assert program.read() == ("below", "d")


@pytest.mark.parametrize(
    ("chord", "keysyms"),
    [
        ("a", ["a"]),
        ("A", ["Shift_L", "A"]),
        ("+", ["Shift_L", "plus"]),
        ("ctrl++", ["Control_L", "Shift_L", "plus"]),
        ("ctrl+shift+s", ["Control_L", "Shift_L", "S"]),
        ("Ctrl+S", ["Control_L", "s"]),
        ("alt+F4", ["Alt_L", "F4"]),
        ("enter", ["Return"]),
        ("Return", ["Return"]),
        ("ESC", ["Escape"]),
        ("space", ["space"]),
        ("pagedown", ["Next"]),
        ("up", ["Up"]),
        ("KP_7", ["KP_7"]),
        ("ctrl+é", ["Control_L", "eacute"]),
        ("super+\t", ["Super_L", "Tab"]),
    ],
)
def test_chord_presses_in_order_and_releases_reversed(desktop, start, act, chord, keysyms):
    program = start_events(desktop, start)
    act(Move(639, 479), Key(chord))
    assert read(program, len(keysyms)) == [("press", keysym) for keysym in keysyms]
    released = [name for _, name in read(program, len(keysyms))]
    assert [name.lower() for name in released] == [name.lower() for name in reversed(keysyms)] or "Shift_L" in released


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Key("Retrun"), "did you mean Return"),
        (Key("ctrl+esacpe"), "did you mean"),
        (KeyDown("ctrl+"), "unknown key 'ctrl+'"),
        (KeyUp("a++b"), "unknown key ''"),
        (Key("漢字漢字"), "expected a character or a name"),
        (Text("fine\x07"), "no key types it"),
        (Text("half \ud800"), "no key types it"),
    ],
)
def test_unknown_key_is_refused_before_any_event(desktop, start, hands, act, event, reason):
    program = start_events(desktop, start)
    with pytest.raises(UnknownKeyError, match="unknown key") as raised:
        hands.perform([Key("x"), event])
    assert reason in str(raised.value)
    act(Key("y"))
    assert program.read() == ("press", "y")


def test_mouse_events_arrive(desktop, start, act):
    program = start_events(desktop, start)
    act(Move(100, 100))
    assert program.read() == ("motion", 0, 100, 100)
    act(Click(110, 120, "right"))
    assert read(program, 3) == [("motion", 0, 110, 120), ("down", 3, 110, 120), ("up", 3, 110, 120)]
    act(DoubleClick(50, 60))
    events = [program.read()]
    while events.count(("up", 1, 50, 60)) < 2:
        events.append(program.read())
    assert ("double",) in events
    act(Scroll(50, 60, dx=0, dy=2), Scroll(50, 60, dy=-1))
    assert [event[1] for event in read(program, 8)] == [0, 5, 5, 5, 5, 0, 4, 4]
    act(Move(60, 70), MouseDown("middle"), Move(65, 75), MouseUp("middle"))
    assert read(program, 4)[1::2] == [("down", 2, 60, 70), ("up", 2, 65, 75)]


def test_drag_moves_through_intermediate_points(desktop, start, act):
    program = start_events(desktop, start)
    act(Drag(50, 60, 350, 260))
    events = [program.read()]
    while events[-1][0] != "up":
        events.append(program.read())
    assert ("down", 1, 50, 60) in events
    assert events[-1] == ("up", 1, 350, 260)
    way = events[events.index(("down", 1, 50, 60)) + 1 : -1]
    assert len(way) >= 5
    assert way == sorted(way)


def test_held_keys_and_buttons_are_released(desktop, start, hands, act):
    program = start_events(desktop, start)
    act(Move(100, 100), KeyDown("ctrl+shift"), MouseDown(), KeyDown("a"), Key("shift+b"))
    while program.read() != ("release", "B"):
        pass
    hands.release_all()
    assert {program.read()[:2] for _ in range(4)} == {
        ("release", "A"),
        ("release", "Shift_L"),
        ("release", "Control_L"),
        ("up", 1),
    }
    hands.release_all()
    act(Key("z"))
    assert program.read() == ("press", "z")


def test_waits_are_yielded_to_caller(hands):
    assert list(hands.perform([Wait(2.5), Wait(0)])) == [2.5, 0, 0, 0]


def test_events_without_window_are_ignored(desktop, act):
    act(Click(5, 5), Text("nobody 漢字"), Key("ctrl+c"), Scroll(1, 1, dy=5), Drag(1, 1, 300, 300))
    assert desktop.windows() == []


def test_program_remapping_all_keys_is_tolerated(desktop, start, act):
    source = """
from Xlib import display
d = display.Display()
d.change_keyboard_mapping(8, [(0x61, 0x41)] * 248); d.sync(); print("'taken'")
input()
"""
    start(source).read()
    act(Text("ab漢"), Key("ctrl+b"), Key("F5"))
    assert eventually(lambda: not desktop.has_windows())
