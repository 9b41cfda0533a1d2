from __future__ import annotations

import base64
import io
import itertools
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

from coding_gym.errors import ProtocolError
from coding_gym.media.frames import decode_pixels
from coding_gym_server.protocol import Click, Key, MouseDown, Outcome, Rectangle, ScreenRequestOptions, Text, Wait
from tests.support.requirements import missing
from tests.support.running_server import RunningServer
from tests.support.sandbox_processes import command_line, processes_of
from tests.support.timing import eventually, promptly

GREY = (217, 217, 217)
BLACK = (0, 0, 0)

WINDOW = """
import tkinter
root = tkinter.Tk()
root.geometry("200x100+20+30")
"""


pytestmark = pytest.mark.usefixtures("screen_provider")


@pytest.fixture
def screen(session):
    session.reset(screen=(320, 240), capture="auto")
    return session


@pytest.fixture
def check_on_screens(check_on_sessions):
    def check_cases(check, cases):
        def check_case(session, case):
            session.reset(screen=(320, 240), capture="auto")
            check(session, case)

        check_on_sessions(check_case, cases)

    return check_cases


def pixels(observation):
    return decoded(observation.screenshot)


def decoded(picture):
    return decode_pixels(getattr(picture, "pixels", picture))


def color(observation, x, y):
    return tuple(pixels(observation)[y, x].tolist())


def displays(sandbox):
    """Return the pids of the X servers of a sandbox, which no session sees."""
    return {process.pid for process in processes_of(sandbox) if command_line(process).startswith("Xvfb ")}


@pytest.mark.every_provider
def test_display_starts_only_with_first_window(sandbox, screen):
    before = displays(sandbox)
    assert screen.run("import os; print('DISPLAY' in os.environ, 'XAUTHORITY' in os.environ)").stdout == "True True\n"
    assert screen.run("1 + 1").screenshot is None
    assert displays(sandbox) == before
    screen.run(WINDOW + "root.update()")
    assert displays(sandbox) - before


@pytest.mark.every_provider
def test_display_ends_with_episode(sandbox, screen):
    before = displays(sandbox)
    screen.run(WINDOW + "root.update()")
    own = displays(sandbox) - before
    assert own
    screen.reset(screen=(320, 240), capture="auto")
    assert eventually(lambda: not displays(sandbox) & own)
    assert screen.run("1").screenshot is None


@pytest.mark.parametrize("size", [(16, 16), (321, 243), (1280, 720)])
def test_screen_has_requested_size(session, size):
    session.reset(screen=size, capture="always")
    code = "import tkinter; root = tkinter.Tk(); print(root.winfo_screenwidth(), root.winfo_screenheight())"
    observation = session.run(code)
    assert observation.stdout == f"{size[0]} {size[1]}\n"
    assert pixels(observation).shape == (size[1], size[0], 3)


def test_disabled_screen_provides_no_display(session):
    session.reset(screen=None, capture="always")
    assert session.run("import os; print(os.environ.get('DISPLAY'))").stdout == "None\n"
    assert session.run("import tkinter; tkinter.Tk()").exit_code == 1
    with pytest.raises(ProtocolError, match="input events require a screen"):
        session.run("", inputs=[Click(1, 1)])


@pytest.mark.every_provider
@pytest.mark.parametrize(
    "end",
    [
        "root.update()",
        "root.update(); root.destroy()",
        "root.update(); 1 / 0",
        "root.update(); import os; os._exit(7)",
        "root.update(); import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "root.update(); root.quit(); import sys; sys.exit(3)",
        "root.mainloop()",
        "root.after(200, root.destroy); root.mainloop()",
    ],
)
def test_screenshot_shows_window(screen, end):
    observation = screen.run(WINDOW + end)
    assert color(observation, 100, 80) == GREY
    assert color(observation, 5, 5) == BLACK
    assert color(observation, 20, 30) == GREY
    assert color(observation, 219, 129) == GREY
    assert color(observation, 220, 130) == BLACK


def test_withdrawn_window_causes_no_screenshot(screen):
    assert screen.run(WINDOW + "root.withdraw(); root.update(); root.destroy()").screenshot is None


@pytest.mark.parametrize(
    ("capture", "expected"), [("auto", [False, True]), ("always", [True, True]), ("never", [False, False])]
)
def test_capture_mode_controls_screenshots(session, capture, expected):
    session.reset(screen=(320, 240), capture=capture)
    assert [session.run(code).screenshot is not None for code in ("1", WINDOW + "root.update()")] == expected


def test_step_overrides_capture_mode(screen):
    assert not pixels(screen.run("1", capture_screenshot=True)).any()
    assert screen.run(WINDOW + "root.update()", capture_screenshot=False).screenshot is None
    assert color(screen.run("1"), 100, 80) == GREY


@pytest.mark.every_provider
def test_program_waiting_for_events_is_closed(screen):
    observation = screen.run(WINDOW + "root.mainloop(); print('closed')")
    assert (observation.metadata.outcome, observation.exit_code, observation.metadata.idle) == (Outcome.OK, 0, "closed")
    assert observation.stdout == "closed\n"
    assert screen.run("1").screenshot is None


def test_program_ending_itself_is_not_closed(screen):
    observation = screen.run(WINDOW + "root.after(300, root.destroy)\nroot.mainloop()\nprint('done')")
    assert (observation.stdout, observation.metadata.idle) == ("done\n", None)
    assert color(observation, 100, 80) == GREY


PAUSES = [
    "import time; time.sleep(1.5)",
    "import subprocess; subprocess.run(['sleep', '1.5'])",
    "import threading; threading.Event().wait(1.5)",
    "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass",
]


@pytest.mark.every_provider
def test_busy_program_is_not_closed(check_on_screens):
    def check(screen, pause):
        observation = screen.run(WINDOW + f"root.update()\n{pause}\nprint('done')")
        assert (observation.stdout, observation.metadata.idle) == ("done\n", None), observation

    check_on_screens(check, PAUSES)


def refused_close_is_followed_by_interrupt(screen):
    observation = screen.run(WINDOW + "root.protocol('WM_DELETE_WINDOW', lambda: print('no'))\nroot.mainloop()")
    assert (observation.metadata.outcome, observation.exit_code, observation.metadata.idle) == (Outcome.ERROR, 130, "closed")
    assert "KeyboardInterrupt" in observation.stderr
    assert observation.stdout == "no\n"
    assert color(observation, 100, 80) == GREY


def handler_of_interrupts_does_not_count(screen):
    for handler in ("signal.SIG_IGN", "signal.SIG_DFL", "lambda *_: None"):
        observation = screen.run(
            f"{WINDOW}import signal; signal.signal(signal.SIGINT, {handler})\n"
            "root.protocol('WM_DELETE_WINDOW', lambda: None)\nroot.mainloop()"
        )
        assert (observation.exit_code, observation.metadata.idle, observation.metadata.state_lost) == (130, "closed", False)
        assert "coding_gym" not in observation.stderr


def ignored_interrupt_is_followed_by_kill(screen):
    observation = screen.run(
        WINDOW + "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "root.protocol('WM_DELETE_WINDOW', lambda: None)\nroot.mainloop()"
    )
    assert (observation.metadata.outcome, observation.exit_code, observation.metadata.idle) == (Outcome.KILLED, 137, "closed")
    assert color(observation, 100, 80) == GREY
    assert screen.run("print('alive')").stdout == "alive\n"


def test_program_that_stays_open_is_ended(check_on_screens):
    ends = [
        refused_close_is_followed_by_interrupt,
        handler_of_interrupts_does_not_count,
        ignored_interrupt_is_followed_by_kill,
        question_is_asked_once,
    ]
    check_on_screens(lambda screen, check: check(screen), ends)


def question_is_asked_once(screen):
    screen.run("from tkinter import messagebox; asked = []")
    observation = screen.run(
        WINDOW + "def leave(): asked.append(1); messagebox.askokcancel('Leave', 'Really?') and root.destroy()\n"
        "root.configure(bg='red'); root.protocol('WM_DELETE_WINDOW', leave); root.mainloop()"
    )
    assert (observation.metadata.outcome, observation.exit_code, observation.metadata.idle) == (Outcome.ERROR, 130, "closed")
    assert color(observation, 100, 80) == (255, 0, 0)
    assert screen.run("print(asked)").stdout == "[1]\n"


# Programs whose windows no user can close.
UNCLOSEABLE = {
    "withdrawn": "root.withdraw()\nroot.mainloop()",
    "borderless": "root.overrideredirect(True)\nroot.mainloop()",
    "borderless beside a withdrawn one": "root.withdraw(); tkinter.Toplevel(root).overrideredirect(True)\nroot.mainloop()",
    "withdrawn when it is closed": "root.protocol('WM_DELETE_WINDOW', root.withdraw)\nroot.mainloop()",
    "with an idle thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "root.withdraw()\nroot.mainloop()",
}


def test_loop_without_a_window_to_close_is_interrupted(check_on_screens):
    def check(screen, name):
        observation = screen.run(f"{WINDOW}kept = 42\n{UNCLOSEABLE[name]}")
        assert (observation.exit_code, observation.metadata.idle) == (130, "closed"), observation
        assert screen.run("print(kept)").stdout == "42\n"

    check_on_screens(check, list(UNCLOSEABLE))


@pytest.fixture
def toolkit(screen_provider):
    """Function that skips the test where a module or a library is missing; the image has all of them."""

    def require(module, library=None):
        if screen_provider == "local":
            pytest.importorskip(module)
            if library is not None and find_library(library) is None:
                pytest.skip(f"lib{library} is not installed")

    return require


QT_LOOPS = {
    "without a window": "kept = app.exec()",
    "of a splash screen": "splash = QtWidgets.QSplashScreen(QtGui.QPixmap(60, 40)); splash.show(); kept = app.exec()",
    "after its window": "app.setQuitOnLastWindowClosed(False); top = QtWidgets.QWidget(); top.show(); kept = app.exec()",
    "of a dialog": "top = QtWidgets.QDialog(); top.reject = lambda: None; kept = top.exec()",
}


@pytest.mark.every_provider
@pytest.mark.parametrize("name", QT_LOOPS)
def test_qt_loop_is_ended_and_keeps_variables(screen, toolkit, name):
    toolkit("PySide6")
    observation = screen.run(f"from PySide6 import QtGui, QtWidgets\napp = QtWidgets.QApplication([])\n{QT_LOOPS[name]}")
    assert (observation.metadata.state_lost, observation.metadata.idle) == (False, "closed"), observation
    assert screen.run("print(kept)").stdout in ("0\n", "130\n")


@pytest.mark.every_provider
@pytest.mark.parametrize(
    "end",
    [
        "pygame.quit(); pygame.display.init(); pygame.display.set_mode((60, 40), pygame.FULLSCREEN)",
        "pygame.display.set_mode((60, 40))",
        "pygame.display.iconify()",
        "pygame.display.toggle_fullscreen(); pygame.display.toggle_fullscreen()",
        "while pygame.event.wait().type != pygame.QUIT: pass\npygame.quit()",
    ],
)
def test_programs_leave_the_full_screen(screen, toolkit, end):
    toolkit("pygame", "Xi")
    begin = (
        "import pygame\npygame.init()\npygame.display.set_mode((80, 60), pygame.FULLSCREEN).fill('red')\npygame.display.flip()"
    )
    observation = screen.run(f"{begin}\nprint(pygame.display.get_window_size())\n{end}")
    assert (observation.exit_code, observation.metadata.state_lost) == (0, False), observation
    assert "(320, 240)" in observation.stdout


# Programs with a withdrawn window, in which something happens later than an idle one is interrupted.
BUSY_WITHOUT_WINDOW = {
    "a timer": "root.after(4000, root.destroy); root.mainloop()",
    "a thread": "threading.Thread(target=lambda: (time.sleep(4), root.after(0, root.destroy))).start(); root.mainloop()",
    "a child": "child = subprocess.Popen(['sleep', '4'], stdout=subprocess.PIPE)\n"
    "root.tk.createfilehandler(child.stdout, tkinter.READABLE, lambda *_: root.destroy()); root.mainloop()",
    "no loop": "subprocess.run(['sleep', '4'], capture_output=True)",
    "a message": "ours, theirs = socket.socketpair()\nthreading.Timer(4, theirs.send, [b'x']).start()\nours.recv(1)",
}


def test_program_without_windows_is_not_interrupted_while_something_happens(check_on_screens):
    def check(screen, name):
        begin = f"import socket, subprocess, threading, time\n{WINDOW}root.withdraw(); root.update()\n"
        observation = screen.run(f"{begin}{BUSY_WITHOUT_WINDOW[name]}\nprint('done')")
        assert (observation.stdout, observation.stderr, observation.metadata.idle) == ("done\n", "", None), observation

    check_on_screens(check, list(BUSY_WITHOUT_WINDOW))


TURTLE = "import turtle\nturtle.speed(0); turtle.fillcolor('red'); turtle.begin_fill(); turtle.circle(50); turtle.end_fill()\n"


@pytest.mark.parametrize("end", ["turtle.done()", "turtle.exitonclick()", "turtle.bye()", ""])
def test_turtle_programs_follow_each_other(screen, end):
    for _ in range(3):
        observation = screen.run(TURTLE + end)
        assert (observation.metadata.outcome, observation.stderr) == (Outcome.OK, ""), observation


def test_turtle_commands_after_the_close_fail_as_in_python(screen):
    observation = screen.run(f"{TURTLE}turtle.mainloop()\nturtle.forward(10)")
    assert "Terminator" in observation.stderr
    assert screen.run(f"{TURTLE}print('drawn')").stdout == "drawn\n"


# A statement by which the window becomes blue later.
COMING = {
    "a timer of 0.3 s": "root.after(300, blue)",
    "a timer of 2 s": "root.after(2000, blue)",
    "a timer of a timer": "root.after(700, lambda: (root.configure(bg='green'), root.after(1500, blue)))",
    "a sleeping thread": "threading.Thread(target=lambda: (time.sleep(1.2), root.after(0, blue))).start()",
    "a timer thread": "threading.Timer(0.4, lambda: root.after(0, blue)).start()",
    "a polled queue": "threading.Thread(target=lambda: (time.sleep(1.5), queue.append(1))).start(); poll()",
}


def test_picture_shows_what_timers_draw(check_on_screens):
    def check(screen, name):
        observation = screen.run(
            f"{WINDOW}root.configure(bg='red')\nimport threading, time\nqueue = []\n"
            "def blue(): root.configure(bg='blue')\ndef poll(): queue and blue(); root.after(50, poll)\n"
            f"{COMING[name]}\nroot.mainloop()\nprint('end')"
        )
        assert (observation.stdout, observation.stderr, observation.metadata.idle) == ("end\n", "", "closed")
        assert color(observation, 100, 80) == (0, 0, 255)

    check_on_screens(check, list(COMING))


BOX = "messagebox.showinfo('Saved', 'All is well')"
DIALOGS = {
    "of a timer": f"root.after(300, lambda: print({BOX}))\nroot.mainloop()",
    "before the main window": f"print({BOX})\nroot.mainloop()",
    "above the main window": f"root.update(); print({BOX}); root.title('later'); root.mainloop()",
    "in succession": f"root.update(); {BOX}; {BOX}; print({BOX}); root.mainloop()",
    "of its own": "top = tkinter.Toplevel(bg='white'); top.grab_set(); root.wait_window(top); root.title('later'); print('ok')",
    "in a dialog": f"top = tkinter.Toplevel(); top.after(100, lambda: print({BOX}, top.winfo_exists())); root.wait_window(top)",
    "after a question": "simpledialog.askstring('Name', 'Who?', parent=root)\nprint(root.winfo_exists(), 'ok')",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["before the main window", "of its own"], id="some"),
        pytest.param(list(DIALOGS), id="all"),
    ],
)
def test_dialogs_are_closed_before_their_owners(check_on_screens, names):
    def check(screen, name):
        observation = screen.run(f"{WINDOW}from tkinter import messagebox, simpledialog\n{DIALOGS[name]}")
        assert (observation.stderr, observation.metadata.outcome, observation.metadata.idle) == ("", Outcome.OK, "closed")
        assert "ok" in observation.stdout
        assert len(np.unique(pixels(observation).reshape(-1, 3), axis=0)) > 2, "the dialog is not in the picture"

    check_on_screens(check, names)


def test_animation_is_closed_with_its_variables(screen):
    animation_is_closed(screen)
    assert screen.run("print(x)").stdout == "1\n"


ANIMATION = "def turn(n=0): root.configure(bg=('red', 'blue')[n % 2]); root.after(20, turn, n + 1)\nturn(); root.mainloop()"


def animation_is_closed(screen):
    observation = screen.run(f"x = 1\n{WINDOW}{ANIMATION}\nprint('end')", max_watch=1)
    assert (observation.metadata.outcome, observation.metadata.idle, observation.stdout) == (Outcome.OK, "animating", "end\n")
    assert color(observation, 100, 80) in ((255, 0, 0), (0, 0, 255))


def deaf_animation_is_interrupted(screen):
    code = f"x = 1\n{WINDOW}root.protocol('WM_DELETE_WINDOW', lambda: None)\n{ANIMATION}"
    observation = screen.run(code, max_watch=0.5)
    assert (observation.exit_code, observation.metadata.idle) == (130, "animating")
    assert observation.stderr.endswith("[still drawing after 0.5 s, so its windows were closed]\n")


def animation_continues_in_next_step(screen):
    observation = screen.run(f"x = 1\n{WINDOW}{ANIMATION}", max_watch=0.5, on_idle="return")
    assert (observation.metadata.outcome, observation.metadata.idle) == (Outcome.RUNNING, "animating")
    assert screen.run("", max_watch=0.5, on_idle="return").metadata.idle == "animating"


def computation_is_not_an_animation(screen):
    code = f"x = 1\n{WINDOW}root.update()\nimport time\nfor _ in range(150): time.sleep(0.01)\nprint('end')"
    observation = screen.run(code, max_watch=0.5)
    assert (observation.stdout, observation.metadata.idle) == ("end\n", None)


def test_animations_end_with_their_variables(check_on_screens):
    def check(screen, run):
        run(screen)
        assert screen.run("print(x)").stdout == "1\n"

    check_on_screens(
        check,
        [animation_is_closed, deaf_animation_is_interrupted, animation_continues_in_next_step, computation_is_not_an_animation],
    )


@pytest.mark.every_provider
def test_managed_program_is_closed_with_its_variables(session, provider):
    if provider == "local" and shutil.which("blackbox") is None:
        missing("display", "Blackbox is not installed: apt install blackbox")
    session.reset(screen=(320, 240), capture="auto", window_manager=True)
    code = WINDOW + "root.title('framed'); tip = tkinter.Toplevel(root); tip.overrideredirect(True); tip.geometry('9x9+0+0')\n"
    assert session.run(code + "root.mainloop()", on_idle="return").metadata.outcome is Outcome.RUNNING
    assert eventually(lambda: [window.title for window in look(session).windows if window.width > 9] == ["framed"])
    observation = session.run("print('next')")
    assert (observation.stdout, observation.stderr, observation.metadata.state_lost) == ("next\n", "", False)
    observation = session.run(code + "root.mainloop(); print('closed')")
    assert (observation.stdout, observation.metadata.idle) == ("closed\n", "closed")
    assert color(observation, 100, 100) == GREY
    assert session.run("print('root' in globals())").stdout == "True\n"


def test_on_idle_return_leaves_program_running(screen):
    code = (
        WINDOW
        + "tkinter.Button(root, text='go', command=lambda: print('clicked')).place(width=200, height=100)\nroot.mainloop()"
    )
    observation = screen.run(code, on_idle="return")
    assert (observation.metadata.outcome, observation.exit_code) == (Outcome.RUNNING, 0)
    assert observation.metadata.idle == "returned"
    observation = screen.run("", on_idle="return", inputs=[Click(100, 80)])
    seen = [observation]

    def has_printed():
        if "".join(observation.stdout for observation in seen) == "clicked\n":
            return True
        # A program without CPU time may print after it was considered idle.
        seen.append(screen.run("", on_idle="return"))
        return False

    assert eventually(has_printed), seen
    assert seen[-1].metadata.outcome is Outcome.RUNNING
    observation = screen.run("print('next')")
    assert (observation.metadata.outcome, observation.stdout, observation.metadata.idle) == (Outcome.OK, "next\n", None)


def test_click_can_end_running_program(screen):
    code = (
        WINDOW
        + "tkinter.Button(root, command=root.destroy).place(width=200, height=100)\nroot.mainloop()\nprint('over')\n1 / 0"
    )
    assert screen.run(code, on_idle="return").metadata.outcome is Outcome.RUNNING
    observation = screen.run("", on_idle="return", inputs=[Click(100, 80)])
    assert (observation.metadata.outcome, observation.exit_code, observation.stdout) == (Outcome.ERROR, 1, "over\n")
    assert "ZeroDivisionError" in observation.stderr


def test_game_without_idle_time_keeps_running(screen):
    code = WINDOW + "import itertools\nfor n in itertools.count(): root.configure(bg=('red', 'blue')[n % 2]); root.update()"
    with promptly():
        observation = screen.run(code, on_idle="return", settle_s=0.2)
        assert observation.metadata.outcome is Outcome.RUNNING
    for _ in range(3):
        assert screen.run("", on_idle="return", settle_s=0.05).metadata.outcome is Outcome.RUNNING
    assert screen.run("", on_idle="return", settle_s=0.05, inputs=[Key("a")]).metadata.outcome is Outcome.RUNNING


@pytest.mark.every_provider
def test_reset_ends_running_program(screen):
    screen.run(WINDOW + "root.mainloop()", on_idle="return")
    screen.reset(screen=(320, 240), capture="auto")
    assert screen.run("print('fresh', 'root' in globals())").stdout == "fresh False\n"


def test_open_windows_stay_responsive_between_steps(screen):
    screen.run(WINDOW + "count = []\nroot.after(300, lambda: root.configure(bg='red'))")
    time.sleep(0.6)
    assert color(screen.run("1"), 100, 80) == (255, 0, 0)
    observation = screen.run("", inputs=[Click(100, 80), Text("hé☃𝄞")])
    assert observation.metadata.outcome is Outcome.OK
    screen.run("entry = tkinter.Entry(root); entry.place(x=0, y=0, width=200); entry.focus_force()")
    screen.run("", inputs=[Click(50, 40), Text("Grüße, 世界! {~}"), Wait(0.05)])
    assert screen.run("print(entry.get())").stdout == "Grüße, 世界! {~}\n"


def test_event_handler_output_appears_in_next_step(screen):
    screen.run(WINDOW + "root.bind('<Key>', lambda event: print(event.keysym)); root.update()")
    observation = screen.run("", inputs=[Key("x"), Key("ctrl+Left")])
    assert observation.stdout.split() == ["x", "Control_L", "Left"]


def test_unknown_key_is_refused_without_effect(screen):
    screen.run("x = 1")
    with pytest.raises(ProtocolError, match="Bogus"):
        screen.run("x = 2", inputs=[MouseDown(), Key("Bogus")])
    assert screen.run("print(x)").stdout == "1\n"


def test_frames_are_recorded_at_requested_rate(session):
    session.reset(screen=(320, 240), capture="auto", frame_rate=20.0)
    code = "for n in range(10): root.configure(bg=f'#{n * 20:02x}0000'); root.update(); import time; time.sleep(0.06)"
    frames = session.run(WINDOW + code).frames
    assert 6 <= len(frames) <= 30
    times = [frame.time for frame in frames]
    assert times == sorted(times)
    # On a busy machine, a late frame is followed by one on time, so individual intervals may be short.
    assert np.median(np.diff(times)) > 0.03
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(map(decoded, frames)))


def test_windows_and_regions_are_captured(screen):
    screen.run(WINDOW + "root.title('Ünïcode ☃'); root.update()")
    screen.run("other = tkinter.Toplevel(root, bg='blue'); other.geometry('50x40+250+150'); other.title('tk')")
    shown = look(screen)
    assert [(w.title, w.x, w.y, w.width, w.height, w.stacking) for w in shown.windows] == [
        ("Ünïcode ☃", 20, 30, 200, 100, 0),
        ("tk", 250, 150, 50, 40, 1),
    ]
    assert not shown.running
    assert (shown.screenshot.width, shown.screenshot.height) == (320, 240)
    part = look(screen, region=shown.windows[1].id)
    assert (part.screenshot.width, part.screenshot.height) == (50, 40)
    assert tuple(pixels(part)[20, 20].tolist()) == (0, 0, 255)
    part = look(screen, region=Rectangle(10, 20, 30, 15))
    assert pixels(part)[0, 0].tolist() == list(BLACK)
    assert pixels(part)[-1, -1].tolist() == list(GREY)
    with pytest.raises(ProtocolError, match="no window 12345"):
        look(screen, region=12345)


def test_interrupt_reaches_cell_while_event_handlers_run(screen):
    screen.run(WINDOW + "import time\nheld = 42\ndef tick():\n    time.sleep(0.2)\n    root.after(1, tick)\ntick()")
    for _ in range(5):
        observation = screen.run("time.sleep(20)", timeout=0.05)
        assert (observation.metadata.outcome, observation.metadata.state_lost) == (Outcome.TIMEOUT, False), observation
    assert screen.run("held").stdout == "42\n"


def test_event_handler_between_cells_is_interrupted(screen):
    screen.run(WINDOW + "import time\nheld = 42\nhandler = root.after(1, lambda: time.sleep(60))")
    time.sleep(0.5)
    observation = screen.run("print('begun')", timeout=0.1)
    assert (observation.metadata.outcome, observation.metadata.state_lost) == (Outcome.TIMEOUT, False), observation
    assert screen.run("held").stdout == "42\n"


def look(session, region=None):
    return session._session.request_screen(ScreenRequestOptions(region=region))


@pytest.mark.every_provider
def test_windows_of_child_processes_are_shown(screen):
    observation = screen.run(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WINDOW + 'root.mainloop()'!r}])")
    assert color(observation, 100, 80) == GREY
    assert observation.metadata.idle == "closed"
    assert observation.exit_code == 0


@pytest.mark.every_provider
def test_matplotlib_shows_figures_on_screen(session):
    session.reset(screen=(640, 480), capture="auto")
    observation = session.run(
        "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2], color='#ff0000', lw=5)\nplt.show()", timeout=20
    )
    assert (observation.metadata.idle, observation.exit_code) == ("closed", 0), observation
    assert (pixels(observation) == (255, 0, 0)).all(axis=2).sum() > 500


def test_json_clients_receive_png(provider, tmp_path):
    if provider == "docker":
        pytest.skip("the server is the same as that of the local provider")

    def answer(path, **body):
        return httpx.post(f"{server.url}{path}", json=body, timeout=30)

    with RunningServer(tmp_path) as server, ThreadPoolExecutor(2) as threads:
        code = WINDOW + "root.mainloop()"
        step = threads.submit(answer, "/step", action={"code": code, "capture_screenshot": True})
        cell = threads.submit(answer, "/execute", code=code)
        picture = Image.open(io.BytesIO(base64.b64decode(step.result().json()["observation"]["screenshot"])))
        assert (picture.format, picture.size, picture.getpixel((100, 80))) == ("PNG", (800, 600), GREY)
        assert any('"png"' in line for line in cell.result().text.splitlines())
        assert not any('"png"' in line for line in answer("/execute", code="1").text.splitlines())


def own_processes(name):
    return [process for process in psutil.Process().children(recursive=True) if process.name() == name]


def test_display_outlives_removal_of_its_dead_predecessor(screen, provider):
    if provider == "docker":
        pytest.skip("the processes of the container are inaccessible")
    others = own_processes("Xvfb")
    screen.run(WINDOW + "root.update()")
    (dead,) = (process for process in own_processes("Xvfb") if process not in others)
    dead.kill()
    assert eventually(lambda: not dead.is_running())
    # The first connection to the new display ends the interpreter, whose first window has lost its display.
    screen.run(WINDOW + "root.update()")
    screen.run(WINDOW + "root.update()")
    (alive,) = (process for process in own_processes("Xvfb") if process not in others)
    command = alive.cmdline()
    directory = Path(f"/proc/{alive.pid}/root{command[command.index('-fbdir') + 1]}")
    assert directory.is_dir()
    # What is left of the dead display is removed after five seconds.
    time.sleep(5.5)
    assert directory.is_dir()


def test_display_death_is_survived(screen, provider):
    if provider == "docker":
        pytest.skip("the processes of the container are inaccessible")
    screen.run(WINDOW + "root.update()")
    for process in own_processes("Xvfb"):
        process.kill()
    observation = screen.run("print('still here')")
    assert observation.exit_code in (0, 1)
    screen.run("1")
    observation = screen.run(WINDOW + "root.mainloop()", timeout=15)
    assert observation.metadata.outcome in (Outcome.OK, Outcome.KILLED)
    assert color(screen.run(WINDOW + "root.mainloop()"), 100, 80) == GREY
