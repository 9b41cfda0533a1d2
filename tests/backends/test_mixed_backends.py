"""Sessions of different backends in one sandbox: what one of them imports and patches does not exist in another."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from websockets.sync.client import connect as open_socket

from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.worker.backends.registry import is_installed
from conftest import TestSession
from tests.backends.backend_session import BackendSession
from tests.grading.judging import Judge
from tests.support.requirements import require_display
from tests.support.running_server import RunningServer, gone_within

_SESSIONS = 8
# More than there are spares from before.
_LATER = 3
_PRELOAD = ("numpy", "matplotlib.pyplot")

# What libraries change when they are imported or set up. Printed in short lines, because long ones are cut.
_STATE = r"""
import builtins, json, logging, os, signal, sys, threading, warnings
import matplotlib

def name(value):
    return repr(value).partition(" at 0x")[0]

state = {
    "builtins": {n: name(getattr(builtins, n)) for n in dir(builtins) if n != "_"},
    "hooks": [name(h) for h in (sys.displayhook, sys.excepthook, sys.unraisablehook, threading.excepthook)],
    "environment": {n: value for n, value in os.environ.items() if n not in ("DISPLAY", "HOME")},
    "prompts": [getattr(sys, n, None) for n in ("ps1", "ps2")],
    "importers": [name(finder) for finder in sys.meta_path],
    "warnings": [repr(entry) for entry in warnings.filters],
    "logging": [name(handler) for handler in logging.getLogger().handlers],
    "signals": {n.name: name(signal.getsignal(n)) for n in signal.Signals},
    "matplotlib": {n: repr(dict.__getitem__(matplotlib.rcParams, n)) for n in matplotlib.rcParams},
    "modules": sorted(sys.modules),
}
text = json.dumps(state)
for begin in range(0, len(text), 1000):
    print(json.dumps(text[begin : begin + 1000]))
"""


@contextlib.contextmanager
def _sandbox(**options: Any) -> Iterator[Sandbox]:
    config = SandboxConfig(provider="local", sessions=_SESSIONS, preload=_PRELOAD, **options)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def unmixed() -> dict[str, object]:
    """State of the interpreter of a Python session, in a sandbox that has had no session of another backend."""
    with _sandbox() as sandbox, contextlib.closing(TestSession(sandbox)) as session:
        return _state(session)


def _state(session: TestSession) -> dict[str, object]:
    session.reset(backend="python", max_output_chars=1_000_000)
    lines = session.run(_STATE).stdout.splitlines()
    return json.loads("".join(map(json.loads, lines)))


def _differences(state: dict[str, object], expected: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {name: (state[name], expected[name]) for name in expected if state[name] != expected[name]}


def test_python_session_is_same_after_sessions_of_other_backends(
    connect: Callable[[Sandbox], TestSession], unmixed: dict[str, object]
) -> None:
    others = [name for name in ("notebook", "restricted", "smolagents", "bash") if is_installed(name)]
    with _sandbox() as sandbox:
        # Sessions that continue while others are reset.
        for name in others:
            other = connect(sandbox)
            other.reset(backend=name)
            other.run("1")
        for _ in range(_LATER):
            assert _differences(_state(connect(sandbox)), unmixed) == {}


def test_python_session_is_same_where_the_default_is_another_backend(
    connect: Callable[[Sandbox], TestSession], unmixed: dict[str, object]
) -> None:
    with _sandbox(backend="notebook") as sandbox:
        assert _differences(_state(connect(sandbox)), unmixed) == {}


def test_submissions_are_same_where_the_default_is_another_backend() -> None:
    code = "import builtins, sys, numpy\ndef f(): return hasattr(builtins, 'display'), 'IPython' in sys.modules"
    with _sandbox(backend="notebook") as sandbox, contextlib.closing(sandbox.connect()) as session:
        graded = Judge(session).asserts(code, "assert f() == (False, False), f()")
        assert [case.message for case in graded.cases] == [""], graded


def test_matplotlib_shows_figures_on_screen_after_notebooks(connect: Callable[[Sandbox], TestSession]) -> None:
    require_display()
    with _sandbox() as sandbox:
        notebook = connect(sandbox)
        notebook.reset(backend="notebook")
        figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
        assert notebook.run(figure).stdout == "<Figure size 640x480 with 1 Axes>\n"
        for _ in range(_LATER):
            session = connect(sandbox)
            session.reset(screen=(640, 480), capture="auto")
            observation = session.run(figure)
            assert (observation.stdout, observation.metadata.idle) == ("", "closed")


def test_sessions_outlive_the_zygote_of_their_backend(tmp_path) -> None:
    with RunningServer(tmp_path, "--max-sessions", "4") as server:
        process = psutil.Process(server.process.pid)
        with open_socket(server.ws_url, proxy=None) as connection, open_socket(server.ws_url, proxy=None) as another:
            before = process.children()
            notebook = BackendSession(connection, "notebook")
            notebook.run("x = 40")
            (zygote,) = set(process.children()) - set(before)
            zygote.kill()
            assert gone_within([zygote]) == []
            assert notebook.run("x + 2").stdout.strip() == "42"
            # The zygote is replaced.
            assert BackendSession(another, "notebook").run("6 * 7").stdout.strip() == "42"
