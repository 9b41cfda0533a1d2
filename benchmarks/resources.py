"""Benchmarks of the start time and the memory consumption of sandboxes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import cast

import gymnasium as gym

from benchmarks.plan import BenchPlan, milliseconds
from benchmarks.processes import NotMeasurableError, RssPeak, find_processes, find_server, pss, rss
from benchmarks.report import Row
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.sandbox.base import Sandbox
from coding_gym_server.protocol import ResetOptions

__all__ = ["measure_cold_start", "measure_memory", "measure_output"]

_SANDBOXES = 8
_EXTRA_SESSIONS = 16
_RESET_SECONDS = 30.0
_SETTLE_SECONDS = 1.0
_PRINT_100_MB = "for _ in range(100):\n    print('x' * 999_999)"


def measure_cold_start(plan: BenchPlan) -> Iterator[Row]:
    """Measure the time from making an environment to its first observation."""

    def start_one(stack: ExitStack) -> None:
        stack.enter_context(closing(plan.make_env())).reset()

    def start_many(stack: ExitStack) -> None:
        env = plan.make_vector_env(num_envs=_SANDBOXES, sessions_per_sandbox=1)
        stack.enter_context(closing(env)).reset()

    for what, start, times, threshold in (
        ("cold start: gym.make to the first observation", start_one, 3, 2.0),
        (f"cold start of {_SANDBOXES} sandboxes in parallel", start_many, plan.times(3, least=1), 8.0),
    ):
        samples = []
        for _ in range(times):
            with ExitStack() as stack:
                samples.append(milliseconds(partial(start, stack)) / 1e3)
        yield Row.of_samples(what, "s", samples, at_most=threshold)


def measure_memory(plan: BenchPlan) -> Iterator[Row]:
    """Measure the memory consumption of an additional idle session."""
    what, threshold = "memory of one more idle session (PSS)", 8.0
    with ExitStack() as stack:
        env = stack.enter_context(closing(plan.make_env(sessions=32)))
        env.reset(seed=0)
        sandbox = _sandbox(env)
        try:
            before = _settled_pss(sandbox)
            for _ in range(_EXTRA_SESSIONS):
                session = stack.enter_context(closing(sandbox.connect()))
                session.ask_reset(ResetOptions(seed=0))
                session.wait(timeout=_RESET_SECONDS)
            after = _settled_pss(sandbox)
        except NotMeasurableError as error:
            yield Row(what=what, unit="MB", median=None, at_most=threshold, note=f"skipped: {error}")
            return
    note = f"1 session: {before:.0f} MB, {1 + _EXTRA_SESSIONS}: {after:.0f} MB"
    yield Row(what=what, unit="MB", median=(after - before) / _EXTRA_SESSIONS, at_most=threshold, note=note)


def measure_output(plan: BenchPlan) -> Iterator[Row]:
    """Measure the memory growth of the server while a step prints 100 MB."""
    what, threshold = "100 MB printed in a step: growth of the server (RSS)", 8.0
    with closing(plan.make_env()) as env:
        env.reset(seed=0)
        env.step("print('hi')")
        try:
            server = find_server(find_processes(_sandbox(env)))
        except NotMeasurableError as error:
            yield Row(what=what, unit="MB", median=None, at_most=threshold, note=f"skipped: {error}")
            return
        before = rss(server)
        with RssPeak(server) as peak:
            seconds = milliseconds(lambda: env.step(_PRINT_100_MB)) / 1e3
        growth = max(peak.megabytes, rss(server)) - before
    yield Row(what=what, unit="MB", median=growth, at_most=threshold, note=f"the step took {seconds:.2f} s")


def _sandbox(env: gym.Env[object, str]) -> Sandbox:
    sandbox = cast(CodingEnv, env.unwrapped).sandbox
    assert sandbox is not None
    return sandbox


def _settled_pss(sandbox: Sandbox) -> float:
    # Wait until spare workers have been forked in the background.
    time.sleep(_SETTLE_SECONDS)
    pids = find_processes(sandbox)
    find_server(pids)
    return pss(pids)
