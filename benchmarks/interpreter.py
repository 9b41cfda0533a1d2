"""Benchmarks of notebook cells over the code-interpreter API, and of sandboxes with additional packages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym

from benchmarks.plan import BenchPlan, milliseconds, repeat
from benchmarks.processes import NotMeasurableError, find_processes, find_server, pss
from benchmarks.report import Row
from coding_gym.code_interpreter import CodeInterpreter, Context
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["measure_interpreter", "measure_kernels", "measure_packages"]

_CODE = "print('hi')"
_WARM_UP = 20
_EXTRA_CONTEXTS = 16
_SETTLE_SECONDS = 1.0
_KERNELS = {"notebook": "1 + 1", "bash": "echo 2", "jupyter:deno": "1 + 1"}
_PACKAGES = ("toolz", "yaml", "math")


def measure_interpreter(plan: BenchPlan) -> Iterator[Row]:
    """Measure executions and contexts over a persistent connection."""
    with CodeInterpreter(provider=plan.provider, sessions=64) as interpreter:
        repeat(_WARM_UP, lambda: interpreter.execute(_CODE))
        samples = repeat(plan.times(1000), lambda: interpreter.execute(_CODE))
        yield Row.of_samples(f'POST /execute, "{_CODE}" in a notebook cell', "ms", samples, at_most=3)

        made: list[Context] = []

        def create() -> None:
            made.append(interpreter.contexts.create())
            interpreter.execute("1", context=made[-1])

        def restart() -> None:
            interpreter.contexts.restart(made[0])
            interpreter.execute("1", context=made[0])

        def create_and_delete() -> float:
            took = milliseconds(create)
            interpreter.contexts.delete(made.pop())
            return took

        create()
        samples = [create_and_delete() for _ in range(plan.times(40, least=10))]
        yield Row.of_samples("a new context to its first answer", "ms", samples, at_most=25)
        samples = repeat(plan.times(40, least=10), restart)
        yield Row.of_samples("a restart to the first answer", "ms", samples, at_most=25)
        yield _memory_of_contexts(interpreter)


def measure_kernels(plan: BenchPlan) -> Iterator[Row]:
    """Measure the first result after a reset, and a cell, of backends for other languages, and of notebook cells."""
    for backend, code in _KERNELS.items():
        try:
            with closing(plan.make_env(backend=backend, screen=None)) as env:
                env.reset(seed=0)
                env.step(code)
                cells = repeat(plan.times(200, least=20), partial(env.step, code))

                def begin(env: gym.Env[Any, str] = env, code: str = code) -> None:
                    env.reset(seed=0)
                    env.step(code)

                starts = repeat(plan.times(10), begin)
        except (ConfigurationError, ProtocolError) as error:
            yield Row(what=f"{backend}: a cell", unit="ms", median=None, note=f"skipped: {error}")
            continue
        yield Row.of_samples(f"{backend}: a reset and its first result", "ms", starts)
        yield Row.of_samples(f"{backend}: a cell", "ms", cells)


def measure_packages(plan: BenchPlan) -> Iterator[Row]:
    """Measure the second start of a sandbox with additional packages, alternating with starts without packages."""
    configs = [SandboxConfig(provider=plan.provider, packages=packages) for packages in ((), _PACKAGES)]
    first = milliseconds(partial(_start, configs[1])) / 1e3
    samples: list[list[float]] = [[], []]
    for _ in range(plan.times(7)):
        for config, times in zip(configs, samples, strict=True):
            times.append(milliseconds(partial(_start, config)) / 1e3)
    without, with_packages = (
        Row.of_samples(what, "s", times)
        for what, times in zip(("start without packages", "second start with packages"), samples, strict=True)
    )
    yield without
    yield with_packages
    assert without.median is not None
    assert with_packages.median is not None
    note = f"the first start took {first:.1f} s"
    yield Row(what="  the difference", unit="s", median=with_packages.median - without.median, at_most=0.2, note=note)


def _start(config: SandboxConfig) -> None:
    with closing(start_sandbox(config)):
        pass


def _memory_of_contexts(interpreter: CodeInterpreter) -> Row:
    what, threshold = "memory of one more notebook context (PSS)", 12.0
    sandbox = interpreter.sandbox
    assert sandbox is not None

    def settled_pss() -> float:
        # Wait until spare workers have been forked in the background.
        time.sleep(_SETTLE_SECONDS)
        pids = find_processes(sandbox)
        find_server(pids)
        return pss(pids)

    try:
        before = settled_pss()
        for _ in range(_EXTRA_CONTEXTS):
            interpreter.execute(_CODE, context=interpreter.contexts.create())
        after = settled_pss()
    except NotMeasurableError as error:
        return Row(what=what, unit="MB", median=None, at_most=threshold, note=f"skipped: {error}")
    return Row(what=what, unit="MB", median=(after - before) / _EXTRA_CONTEXTS, at_most=threshold)
