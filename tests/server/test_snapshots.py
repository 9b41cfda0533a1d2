"""Snapshots of sessions: the way back to them, and their end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.errors import SnapshotError, TransportError
from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from conftest import TestSession
from tests.support.sandbox_processes import processes_of
from tests.support.timing import eventually


@pytest.mark.every_provider
def test_restore_ends_what_the_episode_has_started(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = session.clone()
    process = session.http.processes.start("sleep 60")
    session.run("import subprocess; p = subprocess.Popen(['sleep', '61'])")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(process.wait)
        # Its request must have arrived.
        time.sleep(0.3)
        session.restore(snapshot)
        assert "snapshot" in (waiting.result(timeout=30).lost or "")
    assert session.run("print('p' in globals())").stdout == "False\n"
    assert session.http.processes.list() == []


def test_seed_reseeds_generators(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = session.clone()
    draw = "import random, numpy; print(random.random(), numpy.random.random())"
    drawn = []
    for seed in (5, 6, 5, None, None):
        session.restore(snapshot, seed=seed)
        drawn.append(session.run(draw).stdout)
    assert drawn[0] == drawn[2]
    assert drawn[3] == drawn[4]
    assert len(set(drawn)) == 3


def test_chain_of_snapshots_continues(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("n = 0")
    for _ in range(40):
        snapshot = session.clone()
        session.restore(snapshot)
        session.release(snapshot)
        session.run("n += 1")
    assert session.run("print(n)").stdout == "40\n"


def test_reset_of_owner_ends_no_snapshot(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 'first'; open('a', 'w').write('a')")
    snapshot = session.clone()
    for _ in range(2):
        session.reset(seed=2)
        assert session.run("import os; print(os.listdir(), 'x' in globals())").stdout == "[] False\n"
        session.restore(snapshot)
        assert session.run("import os; print(os.listdir(), x)").stdout == "['a'] first\n"


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(3)"])
def test_snapshot_outlives_interpreter(session: TestSession, end: str) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = session.clone()
    assert session.run(end).metadata.state_lost
    assert session.run("print(x)").exit_code == 1
    session.restore(snapshot)
    assert session.run("print(x)").stdout == "1\n"


def test_snapshot_outlives_timeout(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = session.clone()
    stubborn = "import signal; h = signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert session.run(stubborn, timeout=0.3).metadata.state_lost
    session.restore(snapshot)
    assert session.run("print(x)").stdout == "1\n"


@pytest.mark.every_provider
def test_program_that_kills_everything_loses_snapshots_only(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = session.clone()
    session.run("import os; os.kill(-1, 9)")
    with pytest.raises(SnapshotError, match="lost"):
        session.restore(snapshot)
    session.reset(seed=1)
    assert session.run("print(1)").stdout == "1\n"


def test_released_snapshot_does_not_exist(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = session.clone()
    session.release(snapshot)
    with pytest.raises(SnapshotError, match="does not exist"):
        session.restore(snapshot)
    assert session.run("print(x)").stdout == "1\n"


@pytest.fixture
def own_sandbox(provider: str) -> Iterator[Sandbox]:
    config = SandboxConfig(provider=provider, preload=(), sessions=2)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


@pytest.mark.every_provider
def test_nothing_is_left_of_snapshots(own_sandbox: Sandbox, connect: Callable[[Sandbox], TestSession]) -> None:
    session = connect(own_sandbox)
    session.reset(seed=1)
    session.reset(seed=1)
    before = len(processes_of(own_sandbox))
    for number in range(30):
        session.run(f"open('file{number}', 'w').write('x' * 1000)")
        snapshot = session.clone()
        session.restore(snapshot)
        if number % 3:
            session.release(snapshot)
    session.close()
    assert eventually(lambda: len(processes_of(own_sandbox)) <= before)
    again = connect(own_sandbox)
    again.reset(seed=1)
    assert (
        again.run("import os; print(os.listdir('/home/user') if os.path.isdir('/home/user') else os.listdir())").exit_code == 0
    )


def test_number_of_snapshots_is_limited(own_sandbox: Sandbox, connect: Callable[[Sandbox], TestSession]) -> None:
    session = connect(own_sandbox)
    session.reset(seed=1)
    for _ in range(64):
        session.clone()
    with pytest.raises(SnapshotError, match="its limit"):
        session.clone()
    assert session.run("print(1)").stdout == "1\n"


@pytest.mark.every_provider
def test_death_of_sandbox_is_transport_error(own_sandbox: Sandbox, connect: Callable[[Sandbox], TestSession]) -> None:
    session = connect(own_sandbox)
    session.reset(seed=1)
    snapshot = session.clone()
    own_sandbox.close()
    with pytest.raises(TransportError):
        session.restore(snapshot)


@pytest.mark.every_provider
def test_files_are_copied_while_others_are_removed(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("open('a', 'w').write('x' * 100_000)")
    for _ in range(50):
        # Released in the background.
        session.release(session.clone())
    assert session.run("print(len(open('a').read()))").stdout == "100000\n"


def test_time_of_released_snapshots_is_not_that_of_a_step(open_session: Callable[[], TestSession]) -> None:
    first, other = open_session(), open_session()
    first.reset(seed=1, cpu_timeout=1.5)
    other.reset(seed=1)
    busy = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\nprint(1)"
    first.run(busy.format(1.2))
    snapshot = first.clone()
    # The worker that has used the time stays frozen.
    first.restore(snapshot)
    release = threading.Timer(0.2, other.release, [snapshot])
    release.start()
    assert first.run(busy.format(0.7)).stdout == "1\n"
    release.join()


@pytest.mark.every_provider
def test_snapshots_that_are_not_copied_yet_survive(open_session: Callable[[], TestSession]) -> None:
    first, other = open_session(), open_session()
    first.reset(seed=1)
    other.reset(seed=1)
    first.run("x = 1; open('f', 'w').write('1')")
    snapshots = [first.clone(), first.clone()]
    first.reset(seed=2)
    snapshots += [first.clone()]
    for session in (other, first, other):
        for snapshot in snapshots[:2]:
            session.restore(snapshot)
            assert session.run("print(x, open('f').read()); x = 2").stdout == "1 1\n"
    first.restore(snapshots[2])
    assert first.run("print('x' in dir())").stdout == "False\n"


@pytest.mark.parametrize("goes_on", [False, True])
def test_released_snapshot_continues_itself(open_session: Callable[[], TestSession], *, goes_on: bool) -> None:
    first, other = open_session(), open_session()
    first.reset(seed=1)
    other.reset(seed=1)
    first.run("import os; x = 1; open('f', 'w').write('1'); file = open('f'); file.read(); pid = os.getpid()")
    for _ in range(3):
        snapshot = first.clone()
        if goes_on:
            first.run("x = 2; open('f', 'a').write('2')")
        first.restore(snapshot, release=True)
        with pytest.raises(SnapshotError, match="does not exist"):
            first.restore(snapshot)
        result = first.run("print(x, open('f').read(), file.tell(), pid == os.getpid()); pid = os.getpid()")
        # It has been the worker itself, unless that continued.
        assert result.stdout == f"1 1 1 {not goes_on}\n"
    snapshot = first.clone()
    other.restore(snapshot, release=True)
    for session in (first, other):
        assert session.run("print(x, open('f').read()); x = 3").stdout == "1 1\n"
