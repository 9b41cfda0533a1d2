"""Limits of submissions do not depend on the load of the machine: time that processes wait for a processor does not count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from coding_gym_server.protocol.grading import Graded, GradingLimits, ProgramCase, Programs, Submission, VerdictOutcome
from tests.grading.judging import Judge
from tests.support.timing import promptly

_LIMITS = GradingLimits(cpu_timeout=20.0, wall_timeout=1.0)
_PER_PROCESSOR = 5
_BUSY = "import os, signal; os.nice(10); signal.alarm(60); print(flush=True)\nwhile True: pass"
_COMPUTE = """
import time
def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
    return seconds
"""


@pytest.fixture(autouse=True)
def load() -> Iterator[None]:
    """Keep each processor busy with processes of the priority that submissions have."""
    command = [sys.executable, "-c", _BUSY]
    # The scheduler may share processors out to sessions first (see "The autogroup feature" in sched(7)).
    busy = [
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(_PER_PROCESSOR * (os.cpu_count() or 1))
    ]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()


def _outcome(graded: Graded) -> VerdictOutcome:
    # The load has been effective: without it, there is nothing to prove.
    assert graded.seconds > _LIMITS.wall_timeout
    return graded.outcome


def test_submission_that_waits_for_processor_passes(judge: Judge) -> None:
    graded = judge.asserts(_COMPUTE, "assert compute(0.4) == 0.4", limits=_LIMITS)
    assert _outcome(graded) is VerdictOutcome.PASSED


def test_tests_that_wait_for_processor_pass(judge: Judge) -> None:
    graded = judge.asserts("x = 1", "assert compute(0.4) == 0.4", setup=_COMPUTE, limits=_LIMITS)
    assert _outcome(graded) is VerdictOutcome.PASSED


def test_child_process_that_waits_for_processor_passes(judge: Judge) -> None:
    code = f"{_COMPUTE}\nimport os\ndef f():\n    if not os.fork(): compute(0.4), os._exit(0)\n    return os.wait()[1]"
    assert _outcome(judge.asserts(code, "assert f() == 0", limits=_LIMITS)) is VerdictOutcome.PASSED


def test_program_that_waits_for_processor_passes(judge: Judge) -> None:
    tests = Programs(cases=(ProgramCase(stdout="0.4\n"),))
    graded = judge(Submission(code=f"{_COMPUTE}\nprint(compute(0.4))", tests=tests, limits=_LIMITS))
    assert _outcome(graded) is VerdictOutcome.PASSED


def test_sleeping_submission_times_out_under_load(judge: Judge) -> None:
    with promptly():
        graded = judge.asserts("import time\ndef f(): time.sleep(300)", "f()", limits=_LIMITS)
    assert _outcome(graded) is VerdictOutcome.TIMEOUT


def test_waiting_submission_ends_after_longest_time(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=60.0, wall_timeout=0.2)
    with promptly(after=limits.wall_timeout):
        graded = judge.asserts(_COMPUTE, "compute(300)", limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
