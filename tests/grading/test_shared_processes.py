"""Submissions that exhaust the number of processes, alongside submissions that need some."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol.grading import Graded, GradingLimits, VerdictOutcome
from tests.grading.judging import Judge

pytestmark = pytest.mark.every_provider

_BOMB = """
import os, time
def f():
    while True:
        try:
            if not os.fork(): time.sleep(60)
        except OSError: pass
"""


@pytest.fixture
def small_sandbox(provider: str) -> Iterator[Sandbox]:
    config = SandboxConfig(provider=provider, preload=(), sessions=2, pids_limit=128)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


def test_fork_bomb_leaves_processes_for_others(small_sandbox: Sandbox) -> None:
    found: list[Graded] = []
    with contextlib.ExitStack() as stack:
        bomber, honest = (Judge(stack.enter_context(contextlib.closing(small_sandbox.connect()))) for _ in range(2))
        honest.asserts("def f(): return 1", "assert f() == 1")
        limits = GradingLimits(cpu_timeout=20.0, wall_timeout=20.0)
        bomb = threading.Thread(target=lambda: found.extend(bomber.asserts(_BOMB, "f()", limits=limits) for _ in range(2)))
        bomb.start()
        while bomb.is_alive():
            graded = honest.asserts("import os\ndef f():\n    os.system('true')\n    return 1", "assert f() == 1")
            assert graded.outcome is VerdictOutcome.PASSED, graded
        bomb.join()
    assert [graded.outcome for graded in found] == [VerdictOutcome.KILLED] * 2
    assert "processes" in found[0].message


def test_submission_main_thread_id_equals_pid(judge: Judge) -> None:
    code = "import os, threading\ndef f(): return threading.main_thread().native_id == os.getpid()"
    assert judge.asserts(code, "assert f() is True").outcome is VerdictOutcome.PASSED


def test_short_submission_reports_cpu_time(judge: Judge) -> None:
    assert 0 < judge.asserts("x = sum(range(10_000))", "assert x").cpu_seconds < 0.1


def test_output_without_trailing_newline_is_kept(judge: Judge) -> None:
    for _ in range(20):
        graded = judge.asserts("def f(): print('said', end='')", "f()", entry_point="f")
        assert (graded.outcome, graded.stdout) == (VerdictOutcome.PASSED, "said")
