"""The screen: whether pictures are complete, what they cost, and what a display takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from coding_gym.bench.baselines import import_after_half_a_second
from coding_gym.bench.gallery import SIZE, Gallery, Picture
from coding_gym.bench.gui_programs import PROGRAMS, SCENES
from coding_gym.bench.plan import Plan, milliseconds
from coding_gym.bench.processes import NotMeasurableError, find_processes, find_server, pss
from coding_gym.bench.report import Row
from coding_gym.config import SandboxConfig
from coding_gym.providers import start_sandbox
from coding_gym_server.protocol import Capture, Click, ResetOptions

__all__ = ["measure_display"]

_REPETITIONS = 20
_SESSIONS = 4
_DISPLAYS = 16
_ANSWER_WITHIN = 30.0
_SETTLE_SECONDS = 1.0
_MOST_FAULTS_NAMED = 3

_WINDOW = next(scene for scene in SCENES if scene.name == "tk_card").code
_STATIC = f"{_WINDOW}\nroot.mainloop()"
_BARE_WINDOW = next(scene for scene in SCENES if scene.name == "xlib_window").code
_LIGHT = """
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


def measure_display(plan: Plan) -> Iterator[Row]:
    """Measure everything about the screen."""
    yield _complete_pictures(plan)
    yield _capture(plan)
    yield from _static_window(plan)
    yield _drawing_nothing(plan)
    yield _click(plan)
    yield from _memory(plan)


def _complete_pictures(plan: Plan) -> Row:
    repetitions = plan.times(_REPETITIONS)
    with Gallery(plan.provider, sessions=_SESSIONS) as gallery, ThreadPoolExecutor(_SESSIONS) as threads:
        missing = {scene.name for scene in SCENES if gallery.missing(scene)}
        programs = [program for program in PROGRAMS if program.scene.name not in missing]
        # First, and not beside each other: they are what everything is compared with.
        for program in programs:
            gallery.reference(program.scene)
        pictures = list(threads.map(gallery.run, programs * repetitions))
    complete = sum(picture.fault is None for picture in pictures)
    note = "; ".join(
        [
            f"{complete} of {len(pictures)}: {len(programs)} programs x {repetitions}",
            *([f"not in the sandbox: {', '.join(sorted(missing))}"] if missing else []),
            *_faults(pictures),
        ]
    )
    return Row(what="complete pictures", unit="%", median=100 * complete / len(pictures), at_least=100, note=note)


def _faults(pictures: Sequence[Picture]) -> list[str]:
    faults = Counter(f"{picture.program.name}: {picture.fault}" for picture in pictures if picture.fault)
    return [f"{fault} ({count} x)" for fault, count in faults.most_common(_MOST_FAULTS_NAMED)]


def _capture(plan: Plan) -> Row:
    """Compare steps that look at a screen that has settled long ago with steps that do not look."""
    with ExitStack() as stack:
        envs = [_env(plan, stack, capture=capture) for capture in ("always", "never")]
        shown, hidden = (env.step(_WINDOW)[0]["screenshot"].any() for env in envs)
        assert shown
        assert not hidden
        looking, blind = _in_turns(plan.times(200, least=50), *(partial(env.step, "pass") for env in envs))
    note = f"n={len(looking)}; without: {np.median(blind):.2f} ms"
    overhead = float(np.median(looking) - np.median(blind))
    return Row(what="a capture of a settled screen in env.step", unit="ms", median=overhead, at_most=3, note=note)


def _static_window(plan: Plan) -> Iterator[Row]:
    with ExitStack() as stack:
        env = _env(plan, stack)
        env.step("import tkinter")
        peer = stack.enter_context(import_after_half_a_second(SIZE))
        samples, others = [], []
        for _ in range(plan.times(30, least=10)):
            samples.append(milliseconds(lambda: env.step(_STATIC)))
            env.step("pass")
            if peer is not None:
                others.append(milliseconds(lambda: peer(_WINDOW, "root.destroy()")))
    row = Row.of_samples("a static tkinter window: the step that opens it", "ms", samples, at_most=200)
    yield row
    if not others:
        note = "skipped: apt install imagemagick xvfb python3-tk"
        yield Row(what="  0.5 s and ImageMagick's import / the step", unit="x", median=None, at_least=3, note=note)
        return
    other = Row.of_samples("  the same, 0.5 s, and ImageMagick's import", "ms", others)
    yield other
    assert row.median is not None
    assert other.median is not None
    yield Row(what="  0.5 s and ImageMagick's import / the step", unit="x", median=other.median / row.median, at_least=3)


def _drawing_nothing(plan: Plan) -> Row:
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(plan.make_env(screen=screen))) for screen in (SIZE, None)]
        for env in envs:
            env.reset(seed=0)
        actions = [partial(env.step, "print('hi')") for env in envs]
        _in_turns(50, *actions)
        seeing, blind = _in_turns(plan.times(3000, least=500), *actions)
    slower = 100 * float(np.median(seeing) / np.median(blind) - 1)
    note = f"n={len(seeing)}; {np.median(seeing):.3f} ms, {np.median(blind):.3f} ms"
    return Row(what="a step that draws nothing, slower than with screen=None", unit="%", median=slower, at_most=3, note=note)


def _click(plan: Plan) -> Row:
    with closing(gym.make("CodingEnvGUI-v0", provider=plan.provider, screen=SIZE)) as env:
        env.reset(seed=0)
        before = env.step({"code": _LIGHT, "events": []})[0]["screenshot"]
        samples, seen = [], 0
        for _ in range(plan.times(100, least=20)):
            start = time.perf_counter()
            after = env.step({"code": "", "events": [Click(x=100, y=100)]})[0]["screenshot"]
            samples.append((time.perf_counter() - start) * 1e3)
            seen += bool((before != after).any())
            before = after
    note = f"n={len(samples)}; {seen} showed it"
    return Row.of_samples("a click to the observation of its effect", "ms", samples, at_most=100, note=note)


def _memory(plan: Plan) -> Iterator[Row]:
    config = SandboxConfig(provider=plan.provider, sessions=_DISPLAYS, preload=())
    with ExitStack() as stack:
        sandbox = stack.enter_context(closing(start_sandbox(config)))
        sessions = [stack.enter_context(closing(sandbox.connect())) for _ in range(_DISPLAYS)]
        for session in sessions:
            session.ask_reset(ResetOptions(seed=0, screen=SIZE, capture=Capture.AUTO))
            session.wait(timeout=_ANSWER_WITHIN)
        time.sleep(_SETTLE_SECONDS)
        before = set(find_processes(sandbox))
        start = time.perf_counter()
        for session in sessions:
            session.ask_step(_BARE_WINDOW)
        seen = [session.wait(timeout=_ANSWER_WITHIN).observation.screenshot for session in sessions]
        seconds = time.perf_counter() - start
        time.sleep(_SETTLE_SECONDS)
        # The processes of the displays, not the programs, which were there before.
        new = [pid for pid in find_processes(sandbox) if pid not in before]
        what, bar, note = "memory of one more display (PSS)", 20.0, f"{len(new) / _DISPLAYS:.1f} processes each"
        try:
            find_server(list(before))
            yield Row(what=what, unit="MB", median=pss(new) / _DISPLAYS, at_most=bar, note=note)
        except NotMeasurableError as error:
            yield Row(what=what, unit="MB", median=None, at_most=bar, note=f"skipped: {error}")
    shown = sum(picture is not None and picture == seen[0] for picture in seen)
    note = f"all {_DISPLAYS} steps took {seconds:.2f} s"
    yield Row(what="displays at once, all with the same picture", unit="", median=shown, at_least=_DISPLAYS, note=note)


def _env(plan: Plan, stack: ExitStack, **options: Any) -> gym.Env[Any, str]:
    env = stack.enter_context(closing(plan.make_env(screen=SIZE, **options)))
    env.reset(seed=0)
    return env


def _in_turns(times: int, *actions: Any) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in actions]
    turns = list(zip(actions, samples, strict=True))
    for _ in range(times):
        for action, taken in turns:
            taken.append(milliseconds(action))
        # Whoever comes first finds colder caches.
        turns.reverse()
    return samples
