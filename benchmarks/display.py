"""Benchmarks of screenshots, clicks and displays."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.plan import BenchPlan, milliseconds
from benchmarks.processes import NotMeasurableError, find_processes, find_server, pss
from benchmarks.report import Row
from coding_gym.inputs import click
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Capture, Click, ResetOptions

__all__ = ["measure_display"]

_SIZE = (640, 480)
_DISPLAYS = 16
_ANSWER_TIMEOUT = 30.0
_SETTLE_SECONDS = 1.0

_WINDOW = """
import tkinter as tk

root = tk.Tk()
root.geometry("260x190+20+30")
tk.Label(root, text="Hello, screen", font=("Helvetica", 16), bg="#ffd700").pack(fill="x")
canvas = tk.Canvas(root, width=240, height=90, bg="white")
canvas.pack(pady=8)
canvas.create_rectangle(10, 10, 80, 80, fill="#d62728")
canvas.create_oval(90, 10, 160, 80, fill="#2ca02c")
for number in range(1, 4):
    tk.Button(root, text=f"Button {number}").pack(side="left")
root.update()
"""
_STATIC = f"{_WINDOW}\nroot.mainloop()"
_LIGHT_DRAWING = """
import tkinter as tk

root = tk.Tk()
root.geometry("200x200+0+0")
colors = ["#d62728", "#2ca02c"]

def switch():
    colors.reverse()
    light.configure(bg=colors[0], activebackground=colors[0])

light = tk.Button(root, command=switch)
light.place(x=0, y=0, width=200, height=200)
switch()
root.mainloop()
"""
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""A program that computes, and ends with its parent, however that ends."""
_BUSY_PROCESSES = 8
_BUSY_TIMEOUT = 60.0
_LEAST_CHANGED = 1000
"""Pixels that a dialog changes at least; a pressed button changes its border."""

_ASKING = {
    "tkinter": """
import tkinter as tk
from tkinter import messagebox

root = tk.Tk()
root.geometry("300x200+0+0")
tk.Button(root, text="ask", command=lambda: messagebox.askyesno("Q", "Really?")).place(x=0, y=0, width=300, height=200)
root.mainloop()
""",
    "PySide6": """
from PySide6 import QtWidgets

app = QtWidgets.QApplication([])
button = QtWidgets.QPushButton("ask")
button.setGeometry(0, 0, 300, 200)
button.clicked.connect(lambda: QtWidgets.QMessageBox.question(button, "Q", "Really?"))
button.show()
app.exec()
""",
    "gi": """
import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gtk

window = Gtk.Window()
window.set_default_size(300, 200)
window.move(0, 0)
button = Gtk.Button(label="ask")
window.add(button)


def ask(_):
    dialog = Gtk.MessageDialog(transient_for=window, modal=True, buttons=Gtk.ButtonsType.YES_NO, text="Really?")
    dialog.run()
    dialog.destroy()


button.connect("clicked", ask)
window.connect("destroy", Gtk.main_quit)
window.show_all()
Gtk.main()
""",
    "pygame": """
import pygame

pygame.init()
screen = pygame.display.set_mode((300, 200))
screen.fill((0, 0, 90))
pygame.display.flip()
while (event := pygame.event.wait()).type != pygame.QUIT:
    if event.type == pygame.MOUSEBUTTONDOWN:
        sum(i * i for i in range(20_000))
        screen.fill((200, 30, 30))
        pygame.display.flip()
pygame.quit()
""",
    "matplotlib": """
import matplotlib.pyplot as plt
from matplotlib.widgets import Button

plt.figure(figsize=(3, 2))
button = Button(plt.axes((0, 0, 1, 1)), "ask")


def ask(_):
    figure, axes = plt.subplots(figsize=(4, 3))
    axes.plot([1, 3, 2])
    figure.show()


button.on_clicked(ask)
plt.show()
""",
}
"""Programs that react to a click with a dialog, a figure or another color, by the module that draws them."""


def measure_display(plan: BenchPlan) -> Iterator[Row]:
    """Measure screenshots, windows, clicks, and the memory consumption of displays."""
    yield _capture(plan)
    yield _static_window(plan)
    yield _idle_overhead(plan)
    yield _click(plan)
    yield from _clicks_beside_others(plan)
    yield from _memory(plan)


def _capture(plan: BenchPlan) -> Row:
    """Measure the overhead of capturing a stable screen, by comparison with steps that do not capture it."""
    with ExitStack() as stack:
        envs = [_env(plan, stack, capture=capture) for capture in ("always", "never")]
        shown, hidden = (env.step(_WINDOW)[0]["screenshot"].any() for env in envs)
        assert shown
        assert not hidden
        with_screen, without_screen = _alternate(plan.times(200, least=50), *(partial(env.step, "pass") for env in envs))
    note = f"n={len(with_screen)}; without: {np.median(without_screen):.2f} ms"
    overhead = float(np.median(with_screen) - np.median(without_screen))
    return Row(what="a capture of a settled screen in env.step", unit="ms", median=overhead, at_most=3, note=note)


def _static_window(plan: BenchPlan) -> Row:
    with ExitStack() as stack:
        env = _env(plan, stack)
        env.step("import tkinter")
        samples = []
        for _ in range(plan.times(30, least=10)):
            samples.append(milliseconds(lambda: env.step(_STATIC)))
            env.step("pass")
    return Row.of_samples("a static tkinter window: the step that opens it", "ms", samples, at_most=200)


def _idle_overhead(plan: BenchPlan) -> Row:
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(plan.make_env(screen=screen))) for screen in (_SIZE, None)]
        for env in envs:
            env.reset(seed=0)
        actions = [partial(env.step, "print('hi')") for env in envs]
        _alternate(50, *actions)
        with_screen, without_screen = _alternate(plan.times(3000, least=500), *actions)
    slower = 100 * float(np.median(with_screen) / np.median(without_screen) - 1)
    note = f"n={len(with_screen)}; {np.median(with_screen):.3f} ms, {np.median(without_screen):.3f} ms"
    return Row(what="a step that draws nothing, slower than with screen=None", unit="%", median=slower, at_most=3, note=note)


def _click(plan: BenchPlan) -> Row:
    with closing(gym.make("CodingEnvGUI-v0", provider=plan.provider, screen=_SIZE)) as env:
        env.reset(seed=0)
        before = env.step({"code": _LIGHT_DRAWING, "events": []})[0]["screenshot"]
        samples, seen = [], 0
        for _ in range(plan.times(100, least=20)):
            start = time.perf_counter()
            after = env.step({"code": "", "events": [Click(x=100, y=100)]})[0]["screenshot"]
            samples.append((time.perf_counter() - start) * 1e3)
            seen += bool((before != after).any())
            before = after
    note = f"n={len(samples)}; {seen} showed it"
    return Row.of_samples("a click to the observation of its effect", "ms", samples, at_most=100, note=note)


def _clicks_beside_others(plan: BenchPlan) -> Iterator[Row]:
    """Count the clicks whose effect the observation lacks, beside busy processes."""
    for module, program in _ASKING.items():
        samples, missing = [], 0
        what, times = f"effects of a click missing beside {_BUSY_PROCESSES} busy processes ({module})", plan.times(20)
        options: dict[str, Any] = {"step_timeout": _BUSY_TIMEOUT, "start_timeout": _BUSY_TIMEOUT, "preload": (), "settle": 3.0}
        if module == "gi" and plan.provider == "docker":
            options["system_packages"] = ["python3-gi", "gir1.2-gtk-3.0"]
        with closing(gym.make("CodingEnvGUI-v0", provider=plan.provider, max_episode_steps=None, **options)) as env:
            env.reset(seed=0)
            if env.step({"code": f"import {module}", "events": []})[0]["exit_code"]:
                yield Row(what=what, unit="", median=None, at_most=0, note=f"skipped: {module} is not installed")
                continue
            with _busy_machine():
                for _ in range(times):
                    env.reset()
                    before = env.step({"code": program, "events": []})[0]["screenshot"].copy()
                    if not before.any():
                        missing += 1
                        continue
                    drawn = np.argwhere(before.any(axis=-1))
                    y, x = (drawn.min(axis=0) + drawn.max(axis=0)) // 2
                    start = time.perf_counter()
                    after = env.step({"code": "", "events": [click(int(x), int(y))]})[0]["screenshot"]
                    samples.append((time.perf_counter() - start) * 1e3)
                    missing += int((after != before).any(axis=-1).sum()) < _LEAST_CHANGED
        yield Row(what=what, unit="", median=missing, at_most=0, note=f"n={times}; {np.median(samples):.0f} ms each")


@contextmanager
def _busy_machine() -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(_BUSY_PROCESSES):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            stack.callback(process.kill)
        yield


def _memory(plan: BenchPlan) -> Iterator[Row]:
    config = SandboxConfig(provider=plan.provider, sessions=_DISPLAYS, preload=())
    with ExitStack() as stack:
        sandbox = stack.enter_context(closing(start_sandbox(config)))
        sessions = [stack.enter_context(closing(sandbox.connect())) for _ in range(_DISPLAYS)]
        for session in sessions:
            session.ask_reset(ResetOptions(seed=0, screen=_SIZE, capture=Capture.AUTO))
            session.wait(timeout=_ANSWER_TIMEOUT)
        time.sleep(_SETTLE_SECONDS)
        before = set(find_processes(sandbox))
        start = time.perf_counter()
        for session in sessions:
            session.ask_step(_WINDOW)
        seen = [session.wait(timeout=_ANSWER_TIMEOUT).observation.screenshot for session in sessions]
        seconds = time.perf_counter() - start
        time.sleep(_SETTLE_SECONDS)
        # The workers already existed: new processes belong to the displays.
        new = [pid for pid in find_processes(sandbox) if pid not in before]
        what, threshold, note = "memory of one more display (PSS)", 20.0, f"{len(new) / _DISPLAYS:.1f} processes each"
        try:
            find_server(list(before))
            yield Row(what=what, unit="MB", median=pss(new) / _DISPLAYS, at_most=threshold, note=note)
        except NotMeasurableError as error:
            yield Row(what=what, unit="MB", median=None, at_most=threshold, note=f"skipped: {error}")
    shown = sum(picture is not None and picture == seen[0] for picture in seen)
    note = f"all {_DISPLAYS} steps took {seconds:.2f} s"
    yield Row(what="displays at once, all with the same picture", unit="", median=shown, at_least=_DISPLAYS, note=note)


def _env(plan: BenchPlan, stack: ExitStack, **options: Any) -> gym.Env[Any, str]:
    env = stack.enter_context(closing(plan.make_env(screen=_SIZE, **options)))
    env.reset(seed=0)
    return env


def _alternate(times: int, *actions: Any) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in actions]
    turns = list(zip(actions, samples, strict=True))
    for _ in range(times):
        for action, taken in turns:
            taken.append(milliseconds(action))
        # The first action of a round finds colder caches.
        turns.reverse()
    return samples
