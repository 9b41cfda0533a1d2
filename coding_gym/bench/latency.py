"""Benchmarks of the latency and throughput of steps and resets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import numpy as np

from coding_gym.bench.baselines import bare_worker
from coding_gym.bench.plan import BenchPlan, milliseconds, repeat
from coding_gym.bench.report import Row
from coding_gym.envs.vector_env import CodingVectorEnv

__all__ = ["measure_deadline", "measure_reset", "measure_step", "measure_vector"]

_CODE = "print('hi')"
_ROUNDS = 10
_WARM_UP = 20
_SESSIONS = 16


def measure_step(plan: BenchPlan) -> Iterator[Row]:
    """Measure steps, alternating with the baseline: executions in a worker without client and server."""
    steps, floors = [], []
    with ExitStack() as stack:
        env = stack.enter_context(closing(plan.make_env()))
        env.reset(seed=0)
        worker = stack.enter_context(bare_worker())
        repeat(_WARM_UP, lambda: env.step(_CODE))
        repeat(_WARM_UP, lambda: worker(_CODE))
        for _ in range(_ROUNDS):
            steps += repeat(plan.times(2000) // _ROUNDS, lambda: env.step(_CODE))
            floors += repeat(plan.times(2000) // _ROUNDS, lambda: worker(_CODE))
    step = Row.of_samples(f'env.step("{_CODE}")', "ms", steps, at_most=0.45)
    floor = Row.of_samples("  the floor: a worker without client and server", "ms", floors)
    yield step
    yield floor
    assert step.median is not None
    assert floor.median is not None
    yield Row(what="  step / floor", unit="x", median=step.median / floor.median, at_most=5)


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


def _steps_per_second(env: CodingVectorEnv, seconds: float) -> float:
    actions = [_CODE] * env.num_envs
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        env.step(actions)
        steps += env.num_envs
    return steps / elapsed
