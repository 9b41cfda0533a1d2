"""Comparison of a step's screenshot with a sleep of half a second and ImageMagick's ``import``.

Environments that do not detect whether a picture is complete take screenshots that way.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.plan import BenchPlan, milliseconds
from benchmarks.report import Row
from coding_gym_server.workspace.xauthority import write_authority

__all__ = ["measure_screenshot"]

_SIZE = (640, 480)
_WINDOW = (Path(__file__).parents[2] / "tests/gallery/gui_programs/scenes/tk_card.py").read_text()
_STATIC = f"{_WINDOW}\nroot.mainloop()"
_INTERPRETER = "import sys, tkinter\nfor line in sys.stdin:\n    exec(eval(line), {})\n    print(flush=True)"
_TAKE_PICTURE = """
import subprocess, time
time.sleep(0.5)
subprocess.run(["import", "-window", "root", "png:-"], check=True, stdout=subprocess.DEVNULL)
"""


def measure_screenshot(plan: BenchPlan) -> Iterator[Row]:
    """Measure a step that opens a static window, and the same with ``import``, in turns."""
    ratio = "  0.5 s and ImageMagick's import / the step"
    if not (importlib.util.find_spec("_tkinter") and shutil.which("Xvfb") and shutil.which("import")):
        note = "skipped: apt install imagemagick xvfb python3-tk"
        yield Row(what=ratio, unit="x", median=None, at_least=3, note=note)
        return
    samples, others = [], []
    with contextlib.closing(plan.make_env(screen=_SIZE)) as env, _import_after_half_a_second() as peer:
        env.reset(seed=0)
        env.step("import tkinter")
        for _ in range(plan.times(30, least=10)):
            samples.append(milliseconds(lambda: env.step(_STATIC)))
            env.step("pass")
            others.append(milliseconds(lambda: peer(_WINDOW, "root.destroy()")))
    step = Row.of_samples("a static tkinter window: the step that opens it", "ms", samples)
    other = Row.of_samples("  the same, 0.5 s, and ImageMagick's import", "ms", others)
    yield step
    yield other
    assert step.median is not None
    assert other.median is not None
    yield Row(what=ratio, unit="x", median=other.median / step.median, at_least=3)


@contextlib.contextmanager
def _import_after_half_a_second() -> Iterator[Callable[[str, str], None]]:
    """Start Xvfb and a warm interpreter; yield a function that takes a screenshot of a program's windows.

    The function runs the code that draws, sleeps for half a second, takes the screenshot with ``import``, and runs the code
    that ends the program.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coding-gym-peers-")))
        authority = directory / "authority"
        write_authority(authority, secrets.token_bytes(16))
        number, number_write = os.pipe()
        screen = ["-screen", "0", "{}x{}x24".format(*_SIZE), "-nolisten", "tcp", "-displayfd", str(number_write)]
        server = subprocess.Popen(
            ["Xvfb", *screen, "-auth", str(authority)],
            pass_fds=[number_write],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(_end, server)
        os.close(number_write)
        with open(number) as file:
            display = f":{file.readline().strip()}"
        environment = {**os.environ, "DISPLAY": display, "XAUTHORITY": str(authority)}
        interpreter = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        stack.callback(_end, interpreter)

        def take_picture(drawing: str, ending: str) -> None:
            assert interpreter.stdin is not None
            assert interpreter.stdout is not None
            print(repr(f"{drawing}\n{_TAKE_PICTURE}\n{ending}"), file=interpreter.stdin, flush=True)
            assert interpreter.stdout.readline(), "the interpreter has died"

        yield take_picture


def _end(process: subprocess.Popen[Any]) -> None:
    with process:
        # On SIGTERM, an X server removes its socket.
        process.terminate()
