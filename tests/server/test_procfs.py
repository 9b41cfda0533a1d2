"""What ``/proc`` tells of processes that have named themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from coding_gym_server.linux import procfs
from tests.support.timing import eventually

NAMES = [
    b"",
    b"\xff",
    b"a b",
    b"a\nb",
    b"\\n",
    b") R 0 (",
    b"\n1 (x) Z 1",
    b"CapPrm:\t0",
    b"CapPrm:\tx",
    b"\nCapPrm:\t0",
    b"SigIgn:\t0",
    b"a\x85\xa0\rb",
]

_PRELUDE = """
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def rename(name): assert libc.prctl(15, name, 0, 0, 0) == 0
def drop_capabilities():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capset(header, data) == 0
def get_capabilities():
    if os.geteuid(): assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
def wait():
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Function that starts a Python program and returns its pid after its call of ``wait``."""
    started: list[subprocess.Popen[bytes]] = []

    def start_program(code: str) -> int:
        program = subprocess.Popen([sys.executable, "-c", _PRELUDE + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == b"\n"
        return program.pid

    yield start_program
    for program in started:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("name", NAMES)
def test_name_of_process_is_not_taken_for_its_state(name: bytes, start: Callable[[str], int]) -> None:
    pid = start(f"signal.signal(signal.SIGINT, signal.SIG_IGN); get_capabilities(); rename({name!r}); wait()")
    assert procfs.ignores(pid, signal.SIGINT)
    assert not procfs.ignores(pid, signal.SIGTERM)
    assert procfs.has_capabilities(pid)
    assert eventually(lambda: not procfs.is_runnable(pid))
    assert not procfs.has_exited(pid)
    assert procfs.session_of(pid) == os.getsid(0)
    assert os.getpid() in procfs.ancestors(pid)
    assert pid in procfs.descendants(os.getpid())
    assert procfs.tasks_below([pid]) == {pid: 1}
    assert 0 <= procfs.cpu_time(pid) < 60


@pytest.mark.parametrize("name", NAMES)
def test_process_without_capabilities_cannot_feign_them(name: bytes, start: Callable[[str], int]) -> None:
    assert not procfs.has_capabilities(start(f"drop_capabilities(); rename({name!r}); wait()"))


def test_capabilities_of_each_thread_count(start: Callable[[str], int]) -> None:
    waiting = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert procfs.has_capabilities(start(f"get_capabilities(); {waiting}; drop_capabilities(); wait()"))
