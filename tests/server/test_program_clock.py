"""The clock of programs stands still while they wait for a processor, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from coding_gym_server.linux.program_clock import ProgramClock

_FOREVER = "while True: pass"
_BURSTS = """
import sys
for _ in sys.stdin:
    sum(range(20_000))
    print(flush=True)
"""
_ROUNDS = 100


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Return a function that starts a program on one processor, which all of a test share."""
    started = []
    processor = min(os.sched_getaffinity(0))

    def start(code: str) -> subprocess.Popen:
        program = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{processor}}}); print(flush=True)\n{code}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(program)
        program.stdout.readline()
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


def speed_of(clock: ProgramClock, *pids: int, meanwhile: Callable[[], object] = lambda: time.sleep(0.01)) -> float:
    """Return how fast a clock runs in proportion to real time."""
    clock.read(pids)
    time.sleep(0.1)
    began, counted = time.monotonic(), clock.read(pids)
    for _ in range(_ROUNDS):
        meanwhile()
        clock.read(pids)
    time.sleep(0.1)
    return (clock.read(pids) - counted) / (time.monotonic() - began)


def test_waits_do_not_count(start):
    program = start(_FOREVER)
    for _ in range(3):
        start(_FOREVER)
    assert speed_of(ProgramClock(), program.pid) < 0.6


def test_waits_longer_than_a_reading_do_not_count(start):
    program = start(_FOREVER)
    for _ in range(30):
        start(_FOREVER)
    assert speed_of(ProgramClock(), program.pid) < 0.3


def test_sleep_counts_however_busy_the_machine(start):
    program = start("input()")
    for _ in range(3):
        start(_FOREVER)
    assert speed_of(ProgramClock(), program.pid) == pytest.approx(1, abs=0.1)


def test_program_does_not_wait_while_it_runs(start):
    """A reader that is woken by what the program does finds it running each time."""
    program = start(_BURSTS)

    def ask():
        program.stdin.write(b"\n")
        program.stdin.flush()
        program.stdout.readline()
        time.sleep(0.01)
        program.stdin.write(b"\n")
        program.stdin.flush()
        clock.read([program.pid])
        program.stdout.readline()

    clock = ProgramClock()
    assert speed_of(clock, program.pid, meanwhile=ask) > 0.25


@pytest.mark.parametrize("count", [6, 30])
def test_clock_does_not_stop_for_programs_that_keep_each_other_waiting(start, count):
    programs = [start(_FOREVER) for _ in range(count)]
    pids = [program.pid for program in programs]
    assert speed_of(ProgramClock(), *pids) < 0.1
    assert speed_of(ProgramClock(slowest=0.5), *pids) == pytest.approx(0.5, abs=0.1)


def test_programs_that_have_exited_do_not_wait(start):
    program = start("pass")
    program.communicate()
    assert speed_of(ProgramClock(), program.pid, 2**22 + 1) == pytest.approx(1, abs=0.1)
