"""Benchmarks of the latency and throughput of steps and resets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.baselines import BaselineError, bare_worker
from benchmarks.plan import BenchPlan, milliseconds, repeat
from benchmarks.report import Row
from coding_gym.envs.vector_env import CodingVectorEnv

__all__ = ["measure_deadline", "measure_first_come", "measure_reset", "measure_step", "measure_vector"]

_CODE = "print('hi')"
_SLEEPING = "import time; time.sleep(1)"
_STEP = f'env.step("{_CODE}")'
_FLOOR = "  the floor: a worker without client and server"
_ROUNDS = 10
_WARM_UP = 20
_SESSIONS = 16


def measure_step(plan: BenchPlan) -> Iterator[Row]:
    """Measure steps, alternating with the baseline: executions in a worker without client and server."""
    times = plan.times(2000) // _ROUNDS
    with closing(plan.make_env()) as env:
        env.reset(seed=0)
        repeat(_WARM_UP, lambda: env.step(_CODE))
        try:
            steps, floors = _alternate(env, times)
        except BaselineError as error:
            yield Row.of_samples(_STEP, "ms", repeat(times * _ROUNDS, lambda: env.step(_CODE)), at_most=0.45)
            yield Row(what=_FLOOR, unit="ms", median=None, note=str(error), failed=True)
            return
    step = Row.of_samples(_STEP, "ms", steps, at_most=0.45)
    floor = Row.of_samples(_FLOOR, "ms", floors)
    yield step
    yield floor
    assert step.median is not None
    assert floor.median is not None
    yield Row(what="  step / floor", unit="x", median=step.median / floor.median, at_most=5)


def _alternate(env: gym.Env[Any, str], times: int) -> tuple[list[float], list[float]]:
    """Return the durations of steps, and of executions in a worker without client and server, in milliseconds.

    Raises:
        BaselineError: If that worker fails.
    """
    steps: list[float] = []
    floors: list[float] = []
    with bare_worker() as worker:
        repeat(_WARM_UP, lambda: worker(_CODE))
        for _ in range(_ROUNDS):
            steps += repeat(times, lambda: env.step(_CODE))
            floors += repeat(times, lambda: worker(_CODE))
    return steps, floors


def measure_reset(plan: BenchPlan) -> Iterator[Row]:
    """Measure resets that have to fork a worker, and resets that find a spare one."""
    for name, spares, pause, threshold in (("no spare worker", 0, 0.0, 6.0), ("a spare waiting", 1, 0.03, 1.0)):
        with closing(plan.make_env(spare_workers=spares)) as env:
            repeat(3, env.reset, pause=pause)
            samples = repeat(plan.times(100, least=20), env.reset, pause=pause)
            # Reference for the cost of waking up: an idle machine responds more slowly than a busy one.
            steps = repeat(len(samples), partial(env.step, _CODE), pause=pause) if pause else []
        yield Row.of_samples(f"env.reset(), {name}", "ms", samples, at_most=threshold)
        if steps:
            yield Row.of_samples(f"  a step after the same pause of {pause * 1e3:.0f} ms", "ms", steps)


def measure_vector(plan: BenchPlan) -> Iterator[Row]:
    """Measure the throughput of 16 sessions, alternating between sessions without and with a screen."""
    with ExitStack() as stack:
        env_without_screen = stack.enter_context(closing(plan.make_vector_env(num_envs=_SESSIONS, screen=None)))
        env_with_screen = stack.enter_context(closing(plan.make_vector_env(num_envs=_SESSIONS)))
        for env in (env_without_screen, env_with_screen):
            env.reset(seed=0)
            _steps_per_second(env, 0.3)
        rounds = plan.times(10)
        rates = [(_steps_per_second(env_without_screen, 0.3), _steps_per_second(env_with_screen, 0.3)) for _ in range(rounds)]
    without, with_screen = (float(np.median(column)) for column in zip(*rates, strict=True))
    note = f"n={rounds} rounds of 0.3 s"
    yield Row(what="16 sessions, screen=None", unit="steps/s", median=without, at_least=5000, note=note)
    yield Row(what="16 sessions, default screen", unit="steps/s", median=with_screen, note=note)
    yield Row(what="  with screen / without", unit="%", median=100 * with_screen / without, at_least=90)


def measure_first_come(plan: BenchPlan) -> Iterator[Row]:
    """Measure the throughput of 16 sessions with ``step``, and with ``send`` and ``recv``; at most one program sleeps."""
    with closing(plan.make_vector_env(num_envs=_SESSIONS, sessions_per_sandbox=_SESSIONS, screen=None)) as env:
        env.reset(seed=0)
        _steps_per_second(env, 0.3)
        for what, first, rounds, seconds in (
            ("one of 16 programs sleeps 1 s", _SLEEPING, plan.times(5), 2.0),
            ("16 equal programs", _CODE, plan.times(10), 0.3),
        ):
            rates = [(_steps_per_second(env, seconds, first), _received_per_second(env, seconds, first)) for _ in range(rounds)]
            lock_step, first_come = (float(np.median(column)) for column in zip(*rates, strict=True))
            note = f"n={rounds} rounds of {seconds:g} s"
            yield Row(what=f"{what}, step", unit="steps/s", median=lock_step, note=note)
            yield Row(what=f"{what}, send and recv", unit="steps/s", median=first_come, note=note)
            at_least = 10 if first == _SLEEPING else None
            yield Row(what="  send and recv / step", unit="x", median=first_come / lock_step, at_least=at_least)


def measure_deadline(plan: BenchPlan) -> Iterator[Row]:
    """Measure the time from the timeout of an endless loop to the result of the next step."""
    timeout = 0.3
    samples = []
    with closing(plan.make_env(step_timeout=timeout)) as env:
        env.reset(seed=0)
        for _ in range(plan.times(10)):
            looping = milliseconds(lambda: env.step("while True: pass"))
            samples.append(looping + milliseconds(lambda: env.step("1")) - timeout * 1e3)
    yield Row.of_samples("endless loop: deadline to the next step's answer", "ms", samples, at_most=60)


def _steps_per_second(env: CodingVectorEnv, seconds: float, first: str = _CODE) -> float:
    actions = [first, *[_CODE] * (env.num_envs - 1)]
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        env.step(actions)
        steps += env.num_envs
    return steps / elapsed


def _received_per_second(env: CodingVectorEnv, seconds: float, first: str) -> float:
    """Return the rate of steps first come, first served; the first environment runs ``first``."""
    actions = np.array([first, *[_CODE] * (env.num_envs - 1)], object)
    start = time.perf_counter()
    steps = 0
    env.send(actions)
    while (elapsed := time.perf_counter() - start) < seconds:
        ids = env.recv()[-1]["env_id"]
        steps += len(ids)
        env.send(actions[ids], ids)
    env.recv(min_ready=len(env.pending))
    return steps / elapsed
