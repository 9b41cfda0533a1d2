from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest
from PIL import Image

from coding_gym import inputs
from coding_gym.client.session import Session
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym.tasks import (
    CaseOutcome,
    ChangedShare,
    ColorShare,
    Exited,
    GradingLimits,
    LooksLike,
    MainColor,
    Printed,
    Running,
    ScreenStep,
    ScreenTests,
    VerdictOutcome,
    WindowCount,
    WindowShown,
    run_screen_tests,
)
from coding_gym.tasks.screen.assertions import ScreenSnapshot
from coding_gym_server.protocol import Window
from coding_gym_server.protocol.grading import Graded

PROGRAM = """
import tkinter as tk
root = tk.Tk(); root.title("Two"); root.geometry("200x150+20+30"); root.configure(bg="#ffffff")
field = tk.Frame(root, bg="#d62728"); field.place(x=0, y=0, width=100, height=150)
def hit(event):
    field.configure(bg="#2ca02c"); print("hit", flush=True)
field.bind("<Button-1>", hit)
root.bind("q", lambda event: root.destroy())
root.mainloop()
"""

LEFT = (20, 30, 100, 150)

TESTS = ScreenTests(
    steps=(
        ScreenStep(
            name="opens",
            expect=(
                WindowCount(count=1),
                WindowShown(title="Two", size=(200, 150), position=(20, 30)),
                ColorShare(color="#d62728", area="Two", at_least=0.45, at_most=0.55),
                MainColor(color="#d62728", area=LEFT),
                Running(),
            ),
        ),
        ScreenStep(
            name="turns green",
            events=(inputs.click(50, 60),),
            expect=(
                MainColor(color="#2ca02c", area=LEFT),
                ChangedShare(area="Two", at_least=0.45, at_most=0.55),
                Printed(text="hit"),
            ),
        ),
        ScreenStep(name="ends", events=(inputs.key("q"),), expect=(WindowCount(count=0), Exited(), Printed(text="hit"))),
    )
)


@pytest.fixture(scope="module")
def session(pool, xvfb) -> Iterator[Session]:
    with pool.acquire() as lease, contextlib.closing(lease.sandbox.connect()) as session:
        yield session


@pytest.fixture
def grade(session) -> Callable[..., Graded]:
    return lambda code, tests=TESTS, **options: run_screen_tests(session, code, tests, **options)


def outcomes(graded: Graded) -> list[str]:
    return [case.outcome.value for case in graded.cases]


# Programs


def test_correct_program_passes_repeatedly(grade):
    for _ in range(2):
        graded = grade(PROGRAM)
        assert graded.outcome is VerdictOutcome.PASSED, graded
        assert [case.name for case in graded.cases] == ["opens", "turns green", "ends"]
        assert graded.stdout == "hit\n"
        assert 0 < graded.load_seconds < graded.seconds


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('print("hit", flush=True)', "pass", ["passed", "failed", "failed"]),
        ("#2ca02c", "#d62728", ["passed", "failed", "passed"]),
        ('root.title("Two")', "pass", ["failed", "failed", "passed"]),
        ("root.destroy()", "print()", ["passed", "passed", "failed"]),
        ("root.destroy()", "(print('more'), root.destroy())", ["passed", "passed", "failed"]),
    ],
)
def test_failed_step_does_not_stop_later_steps(grade, old, new, expected):
    graded = grade(PROGRAM.replace(old, new))
    assert outcomes(graded) == expected
    assert graded.outcome is VerdictOutcome.FAILED
    assert all(bool(case.message) == (case.outcome is CaseOutcome.FAILED) for case in graded.cases)


def test_empty_program_passes_no_step(grade):
    graded = grade("pass")
    assert graded.outcome is VerdictOutcome.FAILED
    assert outcomes(graded) == ["failed"] * 3
    assert "expected 1 windows, found 0" in graded.cases[0].message
    assert "it had ended before" in graded.cases[2].message


@pytest.mark.parametrize(
    ("code", "outcome", "message"),
    [
        ("def", VerdictOutcome.ERROR, "SyntaxError"),
        ("1 / 0", VerdictOutcome.ERROR, "ZeroDivisionError"),
        ("raise SystemExit(3)", VerdictOutcome.ERROR, "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", VerdictOutcome.KILLED, "137"),
        ("while True: pass", VerdictOutcome.TIMEOUT, "timed out"),
    ],
)
def test_broken_program_skips_further_steps(grade, code, outcome, message):
    graded = grade(code, limits=GradingLimits(cpu_timeout=0.3))
    assert graded.outcome is outcome
    assert outcomes(graded) == [outcome.value, "not_run", "not_run"]
    assert message in graded.cases[0].message


def test_wall_timeout_covers_all_steps(grade):
    graded = grade(PROGRAM.replace("root.mainloop()", "import time; time.sleep(60)"), limits=GradingLimits(wall_timeout=1))
    assert outcomes(graded) == ["timeout", "not_run", "not_run"]
    assert graded.outcome is VerdictOutcome.TIMEOUT

    slow = ScreenStep(events=(inputs.wait(0.7),), expect=(Running(),))
    graded = grade(PROGRAM, ScreenTests(steps=(slow,) * 9), limits=GradingLimits(wall_timeout=3))
    assert outcomes(graded)[0] == "passed"
    assert "timeout" in outcomes(graded)
    assert outcomes(graded)[-1] == "not_run"


def test_hanging_callback_fails_its_step(grade):
    graded = grade(PROGRAM.replace("field.configure", "__import__('time').sleep(60); field.configure"))
    assert outcomes(graded)[:2] == ["passed", "failed"]


def test_error_in_callback_fails_its_step(grade):
    graded = grade(PROGRAM.replace("def hit(event):", "def hit(event):\n    1 / 0"))
    assert outcomes(graded)[:2] == ["passed", "failed"]
    assert "ZeroDivisionError" in graded.stderr


def test_expected_exit_code_is_not_an_error(grade):
    tests = ScreenTests(steps=(ScreenStep(expect=(Exited(code=3),)),))
    assert grade("raise SystemExit(3)", tests).outcome is VerdictOutcome.PASSED
    graded = grade("raise SystemExit(4)", tests)
    assert (graded.outcome, graded.cases[0].name) == (VerdictOutcome.ERROR, "0")


def test_program_has_files_but_not_tests(grade):
    code = "import os\nprint(sorted(os.listdir()), open('a/b.txt').read(), open('raw', 'rb').read())"
    tests = ScreenTests(steps=(ScreenStep(expect=(Printed(text="['a', 'raw'] é b'\\xff'\n\n"),)),))
    graded = grade(code, tests, files={"a/b.txt": "é", "raw": b"\xff"})
    assert graded.outcome is VerdictOutcome.PASSED, graded


def test_last_screen_of_ended_program_is_checked(grade):
    code = PROGRAM.replace("root.mainloop()", "root.update(); root.destroy()")
    tests = ScreenTests(steps=(ScreenStep(expect=(WindowCount(count=0), MainColor(color="#d62728", area=LEFT))),))
    assert grade(code, tests).outcome is VerdictOutcome.PASSED


def test_screen_has_requested_size(grade):
    code = "import tkinter\nroot = tkinter.Tk()\nprint(root.winfo_screenwidth(), root.winfo_screenheight())"
    tests = ScreenTests(steps=(ScreenStep(expect=(Printed(text="300 200"),)),), screen=(300, 200))
    assert grade(code, tests).outcome is VerdictOutcome.PASSED


def test_long_output_is_truncated(grade):
    graded = grade("print('x' * 10_000)", limits=GradingLimits(max_output_chars=300))
    assert len(graded.stdout) <= 300
    assert "characters cut" in graded.stdout


def test_step_with_unknown_key_is_refused(grade):
    tests = ScreenTests(steps=(ScreenStep(events=(inputs.key("nosuchkey"),), expect=(Running(),)),))
    with pytest.raises(ConfigurationError, match="cannot be run in this sandbox"):
        grade(PROGRAM, tests)


def test_lost_session_raises_without_verdict(pool, xvfb):
    with pool.acquire() as lease:
        session = lease.sandbox.connect()
        session.abort()
        with pytest.raises(TransportError):
            run_screen_tests(session, PROGRAM, TESTS)
        session.close()


# Expectations


def snapshot(screen=None, before=None, windows=(), stdout="", exit_code=None, ended_before=False) -> ScreenSnapshot:
    black = np.zeros((40, 60, 3), np.uint8)
    screen = black if screen is None else screen
    return ScreenSnapshot(screen, black if before is None else before, tuple(windows), stdout, exit_code, ended_before)


def window(title="w", x=10, y=5, width=20, height=10) -> Window:
    return Window(id=1, title=title, x=x, y=y, width=width, height=height, stacking=0)


def painted(*color: int, x=10, y=5, width=20, height=10):
    screen = np.zeros((40, 60, 3), np.uint8)
    screen[y : y + height, x : x + width] = color
    return screen


@pytest.mark.parametrize(
    ("expectation", "seen", "mismatch"),
    [
        (WindowCount(count=0), snapshot(), None),
        (WindowCount(count=2), snapshot(windows=[window("a b")]), "found 1: 'a b'"),
        (WindowShown(title="w"), snapshot(windows=[window("v"), window("w")]), None),
        (WindowShown(title="w"), snapshot(windows=[window("W")]), "expected a window 'w', found 'W' 20 x 10 at 10, 5"),
        (WindowShown(size=(22, 8), position=(12, 3)), snapshot(windows=[window()]), None),
        (WindowShown(size=(23, 10)), snapshot(windows=[window()]), "23 x 10"),
        (WindowShown(title="w", size=(23, 10), tolerance=3), snapshot(windows=[window()]), None),
        (WindowShown(title="a", size=(20, 10)), snapshot(windows=[window("a", width=9), window("b")]), "'a' 9 x 10"),
        (ColorShare(color="#ff0000", area="w", at_least=1), snapshot(painted(255, 0, 0), windows=[window()]), None),
        (ColorShare(color="#FF0000", area="w", at_least=1), snapshot(painted(231, 24, 24), windows=[window()]), None),
        (ColorShare(color="#ff0000", area="w", at_least=0.1), snapshot(painted(230, 0, 0), windows=[window()]), "found 0.0%"),
        (ColorShare(color="#ff0000", area="v"), snapshot(windows=[window()]), "expected a window 'v'"),
        (ColorShare(color="#000000", at_most=0.9), snapshot(painted(9, 99, 9)), "found 91.7%"),
        (ColorShare(color="#000000", area=(-5, -5, 10, 10), at_least=1), snapshot(), None),
        (ColorShare(color="#000000", area=(60, 0, 5, 5)), snapshot(), "to be on the screen"),
        (ColorShare(color="#000000", area=(-9, 0, 5, 5)), snapshot(), "to be on the screen"),
        (MainColor(color="#000000"), snapshot(painted(255, 255, 255)), None),
        (MainColor(color="#f0f0f0", area=(10, 5, 20, 10)), snapshot(painted(255, 255, 255)), None),
        (MainColor(color="#1f77b4"), snapshot(), "to be #1f77b4, found #000000"),
        (ChangedShare(at_most=0), snapshot(painted(5, 5, 5)), None),
        (ChangedShare(at_most=0), snapshot(painted(9, 0, 0)), "found 8.3%"),
        (ChangedShare(area=(10, 5, 20, 10), at_least=1), snapshot(before=painted(0, 200, 0)), None),
        (Printed(text="a\nb"), snapshot(stdout="a  \nb\n\n"), None),
        (Printed(text="a\nb"), snapshot(stdout=" a\nb"), "found ' a\\nb'"),
        (Running(), snapshot(), None),
        (Running(), snapshot(exit_code=0), "it exited with 0"),
        (Exited(), snapshot(exit_code=0), None),
        (Exited(), snapshot(), "it is still running"),
        (Exited(), snapshot(exit_code=2), "expected exit code 0, found 2"),
        (Exited(), snapshot(exit_code=0, ended_before=True), "it had ended before"),
    ],
)
def test_expectations_report_mismatches(expectation, seen, mismatch):
    found = expectation.mismatch(seen)
    assert found == mismatch if mismatch is None else mismatch in found


def test_pictures_are_compared_with_pixel_tolerance():
    picture = io.BytesIO()
    Image.fromarray(painted(200, 100, 50)[5:15, 10:30]).save(picture, "PNG")
    expected = LooksLike(png=picture.getvalue(), area=(10, 5, 20, 10), at_least=0.9)
    assert expected.mismatch(snapshot(painted(190, 110, 60))) is None
    assert "found 0.0%" in expected.mismatch(snapshot())
    assert "found 50.0%" in expected.mismatch(snapshot(painted(200, 100, 50, width=10)))
    assert "to be 20 x 10 pixels" in LooksLike(png=picture.getvalue()).mismatch(snapshot())


# Serialization


def test_screen_tests_round_trip_as_json():
    assert msgspec.json.decode(msgspec.json.encode(TESTS), type=ScreenTests) == TESTS
    text = base64.b64encode(b"PNG").decode()
    step = msgspec.convert({"expect": [{"type": "picture", "png": text}]}, ScreenStep)
    assert step == ScreenStep(expect=(LooksLike(png=b"PNG"),))


@pytest.mark.parametrize(
    "data",
    [
        {"steps": []},
        {"steps": [{"expect": []}]},
        {"steps": [{"expect": [{"type": "nothing"}]}]},
        {"steps": [{"expect": [{"type": "color", "color": "red"}]}]},
        {"steps": [{"expect": [{"type": "color", "color": "#ff0000", "at_least": 50}]}]},
        {"steps": [{"expect": [{"type": "color", "color": "#ff0000", "att_least": 0.5}]}]},
        {"steps": [{"events": [{"type": "click"}], "expect": [{"type": "running"}]}]},
        {"steps": [{"expect": [{"type": "running"}]}], "screen": [1, 1]},
    ],
)
def test_invalid_data_is_refused(data):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "screen", **data}, ScreenTests)
