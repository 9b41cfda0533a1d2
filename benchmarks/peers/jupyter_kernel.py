"""Comparison of steps with executions in a Jupyter kernel."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.plan import BenchPlan, repeat
from benchmarks.report import Row

__all__ = ["measure_jupyter"]

_CODE = "print('hi')"
_ROUNDS = 10
_WARM_UP = 20
_ANSWER_SECONDS = 10


def measure_jupyter(plan: BenchPlan) -> Iterator[Row]:
    """Measure a step and a kernel's ``execute`` in turns."""
    what = "  ipykernel, execute until idle"
    if not (importlib.util.find_spec("jupyter_client") and importlib.util.find_spec("ipykernel")):
        yield Row(what=what, unit="ms", median=None, note="skipped: pip install 'coding-gym[peers]'")
        return
    steps, executions = [], []
    with contextlib.closing(plan.make_env()) as env, _kernel() as kernel:
        env.reset(seed=0)
        repeat(_WARM_UP, lambda: env.step(_CODE))
        for _ in range(_ROUNDS):
            steps += repeat(plan.times(2000) // _ROUNDS, lambda: env.step(_CODE))
            executions += repeat(plan.times(200, least=50) // _ROUNDS, lambda: kernel(_CODE))
    step = Row.of_samples(f'env.step("{_CODE}")', "ms", steps)
    peer = Row.of_samples(what, "ms", executions)
    yield step
    yield peer
    assert step.median is not None
    assert peer.median is not None
    yield Row(what="  ipykernel / step", unit="x", median=peer.median / step.median, at_least=10)


@contextlib.contextmanager
def _kernel() -> Iterator[Callable[[str], str]]:
    """Start a Jupyter kernel; yield a function that runs code in it and returns what it printed."""
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="coding-gym-peers-") as directory:
        manager = KernelManager(connection_file=str(Path(directory) / "kernel.json"))
        client = None
        try:
            manager.start_kernel(
                env={**os.environ, "IPYTHONDIR": directory}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            client = manager.blocking_client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            yield lambda code: _execute(client, code)
        finally:
            if client is not None:
                client.stop_channels()
            manager.shutdown_kernel(now=True)


def _execute(client: Any, code: str) -> str:
    request = client.execute(code)
    printed = ""
    while True:
        message = client.get_iopub_msg(timeout=_ANSWER_SECONDS)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            printed += message["content"]["text"]
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return printed
