"""A server without free file descriptors."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coding_gym.errors import CodingGymError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Outcome
from coding_gym_server.protocol.grading import VerdictOutcome
from tests.grading.judging import Judge
from tests.support.sandbox_faults import settled_descriptors
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually


@contextlib.contextmanager
def dedicated_sandbox():
    config = SandboxConfig(provider="local", preload=())
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


def permanent_descriptors(server):
    """Return the descriptors that stay open, without those of a process that is ending and of files that are being read."""
    used = {*map(int, os.listdir(f"/proc/{server.pid}/fd"))}
    unchanged = 0
    while unchanged < 10:
        time.sleep(0.03)
        still_used = used & {*map(int, os.listdir(f"/proc/{server.pid}/fd"))}
        unchanged = unchanged + 1 if still_used == used else 0
        used = still_used
    return used


@contextlib.contextmanager
def free_descriptors(server, number):
    used, limits = permanent_descriptors(server), limits_on_descriptors(server)
    # The limit applies to the number of a descriptor, and there are unused numbers among the used ones.
    first_unavailable = next(itertools.islice((fd for fd in itertools.count() if fd not in used), number, None))
    limit_descriptors(server, first_unavailable, limits[1])
    try:
        yield
    finally:
        limit_descriptors(server, *limits)


def limits_on_descriptors(process):
    lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    soft, hard = next(line for line in lines if line.startswith("Max open files")).split()[3:5]
    return int(soft), int(hard)


def limit_descriptors(process, soft, hard):
    # Another user namespace: the privileges of this one do not suffice, and those of that one end with the next program.
    code = f"""
import ctypes, os, resource
assert ctypes.CDLL(None).setns(os.open("/proc/{process.pid}/ns/user", os.O_RDONLY), 0) == 0
resource.prlimit({process.pid}, resource.RLIMIT_NOFILE, ({soft}, {hard}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_interpreters_start_again_once_descriptors_are_free():
    with dedicated_sandbox() as sandbox, contextlib.closing(sandbox.connect()) as session:

        def run(code):
            session.ask_step(code)
            return session.wait(timeout=30).observation

        assert run("1").exit_code == 0
        server = server_of(sandbox)
        used = settled_descriptors(server)
        for free in range(3):
            with free_descriptors(server, free):
                observation = run("import os; os._exit(7)")
                assert (observation.exit_code, observation.metadata.outcome) == (255, Outcome.INFRASTRUCTURE)
                assert "Too many open files" in observation.stderr
            assert run("print('again')").stdout == "again\n"
        assert eventually(lambda: server.num_fds() <= used)


def test_submissions_are_graded_again_once_descriptors_are_free():
    with dedicated_sandbox() as sandbox, contextlib.closing(sandbox.connect()) as session:
        judge = Judge(session)
        assert judge.asserts("x = 1", "assert x == 1").outcome is VerdictOutcome.PASSED
        server = server_of(sandbox)
        used = settled_descriptors(server)
        for free in range(6):
            with free_descriptors(server, free):
                graded = judge.asserts("x = 1", "assert x == 1")
                assert graded.outcome is VerdictOutcome.INFRASTRUCTURE
                assert "Too many open files" in graded.message
            assert judge.asserts("x = 1", "assert x == 1").outcome is VerdictOutcome.PASSED
        assert eventually(lambda: server.num_fds() <= used)


def test_processes_start_again_once_descriptors_are_free():
    with dedicated_sandbox() as sandbox, contextlib.closing(sandbox.connect()) as session:
        session.ask_step("1")
        session.wait(timeout=30)
        processes = session.http.processes
        assert processes.run("true").exit_code == 0
        server = server_of(sandbox)
        used = settled_descriptors(server)
        # One descriptor is for the connection; a process needs six, two of which are opened at a time.
        for free in range(2, 7):
            refused = pytest.raises(CodingGymError, match="cannot connect to a process: Too many open files")
            with free_descriptors(server, free), refused:
                processes.run("true")
            assert processes.run("echo again").stdout == b"again\n"
        assert eventually(lambda: server.num_fds() <= used)
