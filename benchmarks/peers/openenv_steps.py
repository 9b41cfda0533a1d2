"""Steps through OpenEnv's client, on OpenEnv's server, which interprets syntax trees in process, and on coding_gym's."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

from benchmarks.plan import BenchPlan, repeat
from benchmarks.report import Row
from coding_gym.client.address import Address
from coding_gym.client.http import get_json
from coding_gym.errors import TransportError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["OPENENV_SERVER", "measure_openenv"]

OPENENV_SERVER = Path(__file__).with_name("openenv_server.py")
"""Program that serves on a port of 127.0.0.1, its only argument."""

_PRINT = "print('hi')"
_LOOP = "s = 0\nfor i in range(100_000):\n    s += i"
_ROUNDS = 20
_WARM_UP = 50
_START_SECONDS = 120

_Step = Callable[[str], None]


def measure_openenv(plan: BenchPlan) -> Iterator[Row]:
    """Measure a short step and a loop on both servers, in turns, over TCP on 127.0.0.1."""
    if reason := _reason_to_skip(plan):
        yield Row(what="OpenEnv's client, step", unit="ms", median=None, note=f"skipped: {reason}")
        return
    prints: dict[str, list[float]] = {"ours": [], "theirs": []}
    loops: dict[str, list[float]] = {"ours": [], "theirs": []}
    with contextlib.ExitStack() as stack:
        steps = {"ours": stack.enter_context(_our_server()), "theirs": stack.enter_context(_their_server())}
        for step in steps.values():
            repeat(_WARM_UP, partial(step, _PRINT))
        for _ in range(_ROUNDS):
            for name, step in steps.items():
                prints[name] += repeat(plan.times(1000) // _ROUNDS, partial(step, _PRINT))
        for _ in range(plan.times(10, least=5)):
            for name, step in steps.items():
                loops[name] += repeat(1, partial(step, _LOOP))
    ours, theirs = yield from _rows(f'OpenEnv\'s client, step("{_PRINT}")', prints)
    yield Row(what="  ours / theirs", unit="x", median=ours / theirs, at_most=1)
    ours, theirs = yield from _rows("OpenEnv's client, a loop of 1e5 iterations", loops)
    yield Row(what="  theirs / ours", unit="x", median=theirs / ours, at_least=20)


def _rows(what: str, samples: dict[str, list[float]]) -> Generator[Row, None, tuple[float, float]]:
    """Yield the rows of both servers, and return their medians."""
    ours = Row.of_samples(what, "ms", samples["ours"])
    theirs = Row.of_samples("  the same on OpenEnv's server, smolagents in process", "ms", samples["theirs"])
    yield ours
    yield theirs
    assert ours.median is not None
    assert theirs.median is not None
    return ours.median, theirs.median


def _reason_to_skip(plan: BenchPlan) -> str | None:
    if plan.provider != "docker":
        return "OpenEnv's client requires TCP, so provider docker"
    if not (importlib.util.find_spec("openenv") and importlib.util.find_spec("smolagents")):
        return "pip install 'coding-gym[peers]'"
    return None


@contextlib.contextmanager
def _our_server() -> Iterator[_Step]:
    config = SandboxConfig(provider="docker", transport="tcp")
    with contextlib.closing(start_sandbox(config)) as sandbox, _client(sandbox.address) as step:
        yield step


@contextlib.contextmanager
def _their_server() -> Iterator[_Step]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, OPENENV_SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        address = Address(f"http://127.0.0.1:{port}")
        _wait_until_healthy(process, address)
        with _client(address) as step:
            yield step
    finally:
        process.terminate()
        process.wait()


def _wait_until_healthy(process: subprocess.Popen[bytes], address: Address) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            get_json(address, "/health", timeout=_START_SECONDS)
        except TransportError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@contextlib.contextmanager
def _client(address: Address) -> Iterator[_Step]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from openenv.core import GenericEnvClient

    with GenericEnvClient(base_url=address.url, headers=address.headers).sync() as client:
        client.reset()

        def step(code: str) -> None:
            observation = client.step({"code": code}).observation
            assert observation["exit_code"] == 0, observation["stderr"]

        yield step
