"""Snapshots of sessions: what a restored interpreter keeps, what cannot be copied, and what ends a snapshot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.errors import SnapshotError, TransportError
from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Observation
from tests.conftest import TestSession
from tests.support.requirements import import_extra
from tests.support.sandbox_faults import eventually
from tests.support.sandbox_processes import processes_of

pytestmark = pytest.mark.every_provider

BACKENDS = ("python", "notebook", "restricted", "smolagents")

KEPT = {
    "variables": ("x = [1, {'a': (2, 3)}]", "x.append(4); x[1]['a'] = 0", "print(x)"),
    "generator": ("g = (i * i for i in range(9)); next(g)", "next(g)", "print(next(g))"),
    "functions and classes": ("class A:\n    n = 1\ndef f(): return A.n", "A.n = 2\ndef f(): return 0", "print(f())"),
    "random numbers": ("import random; random.random()", "random.random()", "print(random.random())"),
}

KEPT_BY_PYTHON = {
    "numpy generators": (
        "import numpy as np; r = np.random.default_rng(3); r.random(); np.random.random()",
        "r.random(); np.random.random()",
        "print(r.random(), np.random.random())",
    ),
    "finished pool": (
        "from concurrent.futures import ThreadPoolExecutor as P\nwith P(2) as p: y = list(p.map(abs, [1, -2]))",
        "y = None",
        "with P(2) as p: print(y, list(p.map(abs, [1, -2])))",
    ),
    "file that is read": (
        "open('x', 'w').write('abcdefghi'); f = open('x'); f.read(3)",
        "f.read(2); open('x', 'w').write('changed')",
        "print(f.read(3), f.tell())",
    ),
    "unbuffered file": (
        "open('x', 'wb').write(b'abcdefghi'); f = open('x', 'rb', 0); f.read(3)",
        "f.read(2)",
        "print(f.read(3), f.tell())",
    ),
    "file that is written": (
        "f = open('x', 'w'); n = f.write('hello')",
        "n = f.write('more'); f.flush()",
        "n = f.write(' world'); f.flush(); print(open('x').read(), f.tell())",
    ),
    "database in memory": (
        "import sqlite3; c = sqlite3.connect(':memory:'); e = c.execute('create table t(a)')",
        "e = c.execute('insert into t values (2)')",
        "print(list(c.execute('select * from t')))",
    ),
    "event loops": (
        "import asyncio; asyncio.run(asyncio.sleep(0)); loop = asyncio.new_event_loop(); "
        "loop.run_until_complete(asyncio.sleep(0))",
        "loop.run_until_complete(asyncio.sleep(0))",
        "async def f():\n    await asyncio.sleep(0)\n    return 7\nprint(loop.run_until_complete(f()), asyncio.run(f()))",
    ),
    "signal handlers": (
        "import os, signal; seen = []; h = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))",
        "h = signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "os.kill(os.getpid(), signal.SIGUSR1); print(seen)",
    ),
    "profile function": (
        "import sys; calls = []; sys.setprofile(lambda *_: calls.append(1))",
        "",
        "print(sys.getprofile() is None)",
    ),
    "working directory": (
        "import os; os.mkdir('sub'); os.chdir('sub'); open('q', 'w').close()",
        "import shutil; os.chdir('..'); shutil.rmtree('sub')",
        "print(os.getcwd(), os.listdir())",
    ),
    "environment variables": ("import os; os.environ['Q'] = '1'", "os.environ['Q'] = '2'", "print(os.environ['Q'])"),
    "temporary files": (
        "import os, tempfile; d = tempfile.mkdtemp(); open(f'{d}/a', 'w').write('1')",
        "import shutil; shutil.rmtree(d)",
        "print(os.listdir(d), tempfile.gettempdir() == os.environ['TMPDIR'])",
    ),
    "duplicate of stdout": (
        "import os; d = os.dup(1); print('not flushed', end='')",
        "",
        "n = os.write(d, b'written '); print('printed')",
    ),
    "replaced stdout": (
        "import io, sys; old = sys.stdout; sys.stdout = io.StringIO(); print('kept')",
        "print('more')",
        "text = sys.stdout.getvalue(); sys.stdout = old; print(repr(text))",
    ),
    "pickles of own classes": (
        "import pickle\nclass A: pass",
        "del A",
        "print(type(pickle.loads(pickle.dumps(A()))).__name__)",
    ),
    "links and modes": (
        "import os; open('a', 'w').write('1'); os.link('a', 'b'); os.symlink('a', 'c'); os.mkfifo('p'); os.mkdir('d', 0o500); "
        "os.chmod('a', 0o400)",
        "os.chmod('d', 0o700); open('d/new', 'w').close(); os.remove('c')",
        "print(sorted(os.listdir()), os.stat('a').st_nlink, oct(os.stat('a').st_mode), os.readlink('c'), os.listdir('d'))",
    ),
    "unreadable file": (
        "import os; open('a', 'w').write('secret'); os.chmod('a', 0)",
        "os.remove('a')",
        "os.chmod('a', 0o600); print(open('a').read())",
    ),
    "sparse file": (
        "import os; f = open('a', 'wb'); n = f.truncate(1 << 27); n = f.write(b'x'); f.close()",
        "os.remove('a')",
        "print(os.stat('a').st_size, open('a', 'rb').read(2))",
    ),
    "modification times": (
        "import os; open('a', 'w').close(); os.utime('a', (5, 7))",
        "os.utime('a')",
        "print(os.stat('a').st_mtime)",
    ),
    "programs afterwards": (
        "import os",
        "",
        "import subprocess; print(subprocess.check_output(['echo', 'hi']))\n"
        "try: os.wait()\nexcept ChildProcessError: print('none')",
    ),
    "pool of processes afterwards": (
        "import multiprocessing",
        "",
        "with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(abs, [1, -2]))",
    ),
    "main thread": (
        "import threading",
        "",
        "print(threading.main_thread().native_id == threading.get_native_id(), threading.current_thread().name)",
    ),
}

REFUSED = {
    "thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "1 running threads",
    ),
    "child process": ("import subprocess; p = subprocess.Popen(['sleep', '60'])", "1 child processes"),
    "child that was not waited for": ("import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(0.1)", "not waited for"),
    "daemon": ("import subprocess; subprocess.run('setsid sleep 60 >/dev/null 2>&1 &', shell=True)", "1 background processes"),
    "sockets": ("import socket; pair = socket.socketpair()", "a socket"),
    "pipe": ("import os; ends = os.pipe()", "a pipe"),
    "shared mapping": ("import mmap; m = mmap.mmap(-1, 4096)", "1 shared memory mappings"),
    "alarm": ("import signal; signal.alarm(50)", "a real interval timer"),
    "deleted file": ("import os; f = open('x', 'w+'); os.remove('x')", "the deleted file"),
    "database in a file": (
        "import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t(a)'); c.commit()",
        "the SQLite database",
    ),
    "memory file": ("import os; n = os.memfd_create('m')", "memfd:m"),
    "event descriptor": ("import os; n = os.eventfd(0)", "[eventfd]"),
}


def _clone(session: TestSession) -> str:
    return session._session.clone().snapshot


def _restore(session: TestSession, snapshot: str, seed: int | None = None) -> Observation:
    session._session.ask_restore(snapshot, seed=seed)
    return session._session.wait(timeout=30).observation


def _check(session: TestSession, backend: str, setup: str, change: str, check: str) -> None:
    session.reset(seed=1, backend=backend)
    session.run(setup)
    expected = session.run(check)
    assert (expected.exit_code, expected.stderr) == (0, "")
    session.reset(seed=1, backend=backend)
    assert session.run(setup).exit_code == 0
    snapshot = _clone(session)
    assert session.run(change).exit_code == 0
    for _ in range(2):
        assert _restore(session, snapshot).exit_code == 0
        found = session.run(check)
        assert (found.stdout, found.stderr) == (expected.stdout, "")
        session.run(change)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", KEPT)
def test_each_backend_keeps_state(session: TestSession, provider: str, backend: str, name: str) -> None:
    if backend == "smolagents":
        if provider == "docker":
            pytest.skip("the image does not contain smolagents")
        import_extra("smolagents")
    _check(session, backend, *KEPT[name])


@pytest.mark.parametrize("name", KEPT_BY_PYTHON)
def test_state_is_kept(session: TestSession, name: str) -> None:
    _check(session, "python", *KEPT_BY_PYTHON[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_copied_is_refused(session: TestSession, name: str) -> None:
    code, reason = REFUSED[name]
    session.reset(seed=1)
    session.run(f"x = 1\n{code}")
    with pytest.raises(SnapshotError) as refused:
        _clone(session)
    assert any(reason in each for each in refused.value.reasons), refused.value.reasons
    assert session.run("print(x)").stdout == "1\n"


def test_all_reasons_are_reported(session: TestSession) -> None:
    session.reset(seed=1)
    session.run(" ; ".join(REFUSED[name][0] for name in ("pipe", "alarm", "shared mapping")))
    with pytest.raises(SnapshotError) as refused:
        _clone(session)
    assert len(refused.value.reasons) == 4


def test_backends_with_kernels_are_refused(session: TestSession) -> None:
    session.reset(seed=1, backend="bash")
    with pytest.raises(SnapshotError, match="replay"):
        _clone(session)


def test_running_process_is_refused(session: TestSession) -> None:
    session.reset(seed=1)
    process = session.http.processes.start("sleep 60")
    with pytest.raises(SnapshotError, match="1 processes run beside"):
        _clone(session)
    process.kill()
    process.wait()
    assert _clone(session)


def test_restore_ends_what_the_episode_has_started(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = _clone(session)
    process = session.http.processes.start("sleep 60")
    session.run("import subprocess; p = subprocess.Popen(['sleep', '61'])")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(process.wait)
        # Its request must have arrived.
        time.sleep(0.3)
        _restore(session, snapshot)
        assert "snapshot" in (waiting.result(timeout=10).lost or "")
    assert session.run("print('p' in globals())").stdout == "False\n"
    assert session.http.processes.list() == []


def test_seed_reseeds_generators(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = _clone(session)
    draw = "import random, numpy; print(random.random(), numpy.random.random())"
    drawn = []
    for seed in (5, 6, 5, None, None):
        _restore(session, snapshot, seed)
        drawn.append(session.run(draw).stdout)
    assert drawn[0] == drawn[2]
    assert drawn[3] == drawn[4]
    assert len(set(drawn)) == 3


def test_chain_of_snapshots_goes_on(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("n = 0")
    for _ in range(40):
        snapshot = _clone(session)
        _restore(session, snapshot)
        session._session.release(snapshot)
        session.run("n += 1")
    assert session.run("print(n)").stdout == "40\n"


def test_reset_of_owner_ends_no_snapshot(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 'first'; open('a', 'w').write('a')")
    snapshot = _clone(session)
    for _ in range(2):
        session.reset(seed=2)
        assert session.run("import os; print(os.listdir(), 'x' in globals())").stdout == "[] False\n"
        _restore(session, snapshot)
        assert session.run("import os; print(os.listdir(), x)").stdout == "['a'] first\n"


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(3)"])
def test_snapshot_outlives_interpreter(session: TestSession, end: str) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = _clone(session)
    assert session.run(end).metadata.state_lost
    assert session.run("print(x)").exit_code == 1
    _restore(session, snapshot)
    assert session.run("print(x)").stdout == "1\n"


def test_snapshot_outlives_timeout(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = _clone(session)
    stubborn = "import signal; h = signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert session.run(stubborn, timeout=0.3).metadata.state_lost
    _restore(session, snapshot)
    assert session.run("print(x)").stdout == "1\n"


def test_program_that_kills_everything_loses_snapshots_only(session: TestSession) -> None:
    session.reset(seed=1)
    snapshot = _clone(session)
    session.run("import os; os.kill(-1, 9)")
    with pytest.raises(SnapshotError, match="lost"):
        _restore(session, snapshot)
    session.reset(seed=1)
    assert session.run("print(1)").stdout == "1\n"


def test_released_snapshot_does_not_exist(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("x = 1")
    snapshot = _clone(session)
    session._session.release(snapshot)
    with pytest.raises(SnapshotError, match="does not exist"):
        _restore(session, snapshot)
    assert session.run("print(x)").stdout == "1\n"


def test_session_in_use_lends_no_snapshot(open_session: Callable[[], TestSession]) -> None:
    first, second = open_session(), open_session()
    first.reset(seed=1)
    second.reset(seed=2)
    first.run("x = 1")
    second.run("x = 2")
    snapshot = _clone(first)
    with pytest.raises(SnapshotError, match="another environment"):
        _restore(second, snapshot)
    assert second.run("print(x)").stdout == "2\n"
    # Once the first has begun another episode, the second may go on from it.
    first.reset(seed=3)
    _restore(second, snapshot)
    assert second.run("print(x)").stdout == "1\n"
    first.close()
    assert second.run("print(x)").stdout == "1\n"


@pytest.fixture
def own_sandbox(provider: str) -> Iterator[Sandbox]:
    config = SandboxConfig(provider=provider, preload=(), sessions=2)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


def test_nothing_is_left_of_snapshots(own_sandbox: Sandbox, connect: Callable[[Sandbox], TestSession]) -> None:
    session = connect(own_sandbox)
    session.reset(seed=1)
    session.reset(seed=1)
    before = len(processes_of(own_sandbox))
    for number in range(30):
        session.run(f"open('file{number}', 'w').write('x' * 1000)")
        snapshot = _clone(session)
        _restore(session, snapshot)
        if number % 3:
            session._session.release(snapshot)
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
        _clone(session)
    with pytest.raises(SnapshotError, match="its limit"):
        _clone(session)
    assert session.run("print(1)").stdout == "1\n"


def test_death_of_sandbox_is_transport_error(own_sandbox: Sandbox, connect: Callable[[Sandbox], TestSession]) -> None:
    session = connect(own_sandbox)
    session.reset(seed=1)
    snapshot = _clone(session)
    own_sandbox.close()
    with pytest.raises(TransportError):
        _restore(session, snapshot)


def test_files_are_copied_while_others_are_removed(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("open('a', 'w').write('x' * 100_000)")
    for _ in range(50):
        # Released in the background.
        session._session.release(_clone(session))
    assert session.run("print(len(open('a').read()))").stdout == "100000\n"
