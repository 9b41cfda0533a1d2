"""A fork bomb is killed and its worker replaced long before the step's timeout; other sessions can fork again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Outcome
from tests.security.attack import Inside
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.sandbox_processes import processes_of, server_of
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually, promptly

pytestmark = pytest.mark.every_provider

STEP_TIMEOUT = 70.0

BOMBS = {
    "fork": "while True:\n    try: os.fork()\n    except OSError: pass",
    "shell": "subprocess.run(['bash', '-c', ':(){ :|:& };:; sleep 60'])",
    "threads": "while True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass",
    "daemons": "while True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n            if os.fork(): "
    "os._exit(0)\n    except OSError: pass",
    "deaf": "for n in set(range(1, 32)) - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True:\n    try: os.fork()\n"
    "    except OSError: pass",
    "siblings": "while True:\n    try: call('clone', 0x8000 | 17, 0, 0, 0, 0)\n    except OSError: pass",
}


@pytest.fixture(scope="module")
def box(provider):
    with lasting_sandbox(provider=provider, sessions=4, pids_limit=128) as sandbox, contextlib.ExitStack() as net:
        if provider == "local":
            net.enter_context(caught_in_a_net(sandbox))
        yield sandbox


@contextlib.contextmanager
def caught_in_a_net(sandbox):
    """Limit the processes of a sandbox by a control group, so that fork bombs cannot exhaust the test machine."""
    server = server_of(sandbox)
    net = Path(f"/sys/fs/cgroup/pids/coding-gym-tests-{server.pid}")
    if not (net.parent / "cgroup.procs").exists() or os.geteuid() != 0:
        pytest.skip("limiting a fork bomb requires root and a pids controller")
    net.mkdir()
    caught = net / "cgroup.procs"
    try:
        (net / "pids.max").write_text("256")
        # Processes that start a session may end, or fork, meanwhile.
        while outside := {process.pid for process in processes_of(sandbox)} - set(map(int, caught.read_text().split())):
            for pid in outside:
                with contextlib.suppress(ProcessLookupError):
                    caught.write_text(str(pid))
        yield
    finally:
        sandbox.close()
        eventually(lambda: not caught.read_text())
        net.rmdir()


@pytest.mark.timeout(600)
def test_fork_bombs_are_killed_before_step_timeout(box, victim):
    victim.do("""
        def refusals_of_forks():
            refusals = 0
            while True:
                try:
                    subprocess.run(["true"])
                    return refusals
                except OSError:
                    refusals += 1
                    time.sleep(0.01)
    """)

    def explode(name):
        with contextlib.closing(Inside(box)) as attacker, promptly():
            attacker.begin(BOMBS[name], STEP_TIMEOUT)
            time.sleep(0.1)
            victim.begin("print(refusals_of_forks())", STEP_TIMEOUT)
            seen = attacker.wait(STEP_TIMEOUT)
            assert seen.metadata.outcome is Outcome.KILLED
            assert seen.metadata.state_lost
            assert attacker.run("1").stdout.endswith("1\n")
            # Each session has its own limit, below the sandbox's.
            assert int(victim.wait(STEP_TIMEOUT).stdout) == 0

    check_side_by_side(explode, BOMBS, at_once=1)


@pytest.mark.timeout(600)
def test_exits_of_other_processes_hide_no_fork_bomb():
    config = SandboxConfig(provider="local", preload=(), sessions=4, pids_limit=128)

    def explode(when):
        others = [subprocess.Popen(["sleep", "60"]) for _ in range(250)]
        with contextlib.ExitStack() as stack:
            stack.callback(end, others)
            sandbox = stack.enter_context(contextlib.closing(start_sandbox(config)))
            stack.enter_context(caught_in_a_net(sandbox))
            attacker = stack.enter_context(contextlib.closing(Inside(sandbox)))
            if when == "before":
                end(others)
                time.sleep(0.5)
            attacker.begin(BOMBS["fork"], STEP_TIMEOUT)
            end(others)
            assert attacker.wait(STEP_TIMEOUT).metadata.outcome is Outcome.KILLED

    check_side_by_side(explode, ["before", "during"], at_once=1)


def end(processes):
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def test_session_below_process_limit_is_unaffected(attacker, victim):
    attacker.do("children = [subprocess.Popen(['sleep', '60']) for _ in range(40)]")
    time.sleep(0.5)
    assert attacker.see("all(child.poll() is None for child in children)")


def test_new_session_starts_after_fork_bomb(box, attacker, victim):
    attacker.run(BOMBS["fork"], STEP_TIMEOUT)
    with contextlib.closing(Inside(box)) as new:
        assert new.see("6 * 7") == 42
