"""Benchmarks of screenshots, clicks and displays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.plan import BenchPlan, milliseconds
from benchmarks.processes import NotMeasurableError, find_processes, find_server, pss
from benchmarks.report import Row
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


def measure_display(plan: BenchPlan) -> Iterator[Row]:
    """Measure screenshots, windows, clicks, and the memory consumption of displays."""
    yield _capture(plan)
    yield _static_window(plan)
    yield _idle_overhead(plan)
    yield _click(plan)
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
