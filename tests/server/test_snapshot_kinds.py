"""Kinds of state that a program can have, and that a snapshot keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coding_gym_server.protocol import Observation
from conftest import TestSession
from tests.support.requirements import import_extra

BACKENDS = ("python", "notebook", "restricted", "smolagents")

KEPT_BY_EACH = {
    "variables": ("x = [1, {'a': (2, 3)}]", "x.append(4); x[1]['a'] = 0", "print(x)"),
    "generator": ("g = (i * i for i in range(9)); next(g)", "next(g)", "print(next(g))"),
    "functions and classes": ("class A:\n    n = 1\ndef f(): return A.n", "A.n = 2\ndef f(): return 0", "print(f())"),
    "random numbers": ("import random; random.random()", "random.random()", "print(random.random())"),
}


KEPT = {
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
    "profile function": (
        "import sys; calls = []; sys.setprofile(lambda *_: calls.append(1))",
        "",
        "print(sys.getprofile() is None)",
    ),
    "environment variables": ("import os; os.environ['Q'] = '1'", "os.environ['Q'] = '2'", "print(os.environ['Q'])"),
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
    "text read in part": (
        "open('x', 'w').write('a\\nb\\nc\\n'); f = open('x'); n = f.readline()",
        "f.readline(); open('x', 'w').write('z')",
        "print(repr(f.readline()), f.tell())",
    ),
    "empty temporary file beside a database": (
        "import tempfile; f = tempfile.NamedTemporaryFile()",
        "f.close()",
        "n = f.write(b'd'); n = f.seek(0); print(f.read())",
    ),
    "shelf": (
        "import dbm.dumb, shelve; s = shelve.Shelf(dbm.dumb.open('s')); s['a'] = 1",
        "s['b'] = 2; s.sync()",
        "s['c'] = 3; s.sync(); print(sorted(s))",
    ),
    "compressed file written in part": (
        "import gzip; f = gzip.open('x.gz', 'wt'); n = f.write('abc' * 1000)",
        "f.write('more'); f.close()",
        "n = f.write('end'); f.close(); t = gzip.open('x.gz', 'rt').read(); print(len(t), t[-6:])",
    ),
    "entry of an archive written in part": (
        "import zipfile; z = zipfile.ZipFile('x.zip', 'w', 8); e = z.open('a', 'w'); n = e.write(b'abc' * 999)",
        "e.close(); z.close()",
        "n = e.write(b'end'); e.close(); z.close(); print(zipfile.ZipFile('x.zip').read('a')[-6:])",
    ),
    "log file": (
        "import logging; log = logging.getLogger('z'); log.addHandler(logging.FileHandler('log')); log.warning('one')",
        "log.warning('two')",
        "log.warning('three'); print(open('log').read())",
    ),
    "transaction in memory": (
        "import sqlite3; c = sqlite3.connect(':memory:'); e = c.execute('create table t(a)'); c.commit(); "
        "e = c.execute('insert into t values(1)')",
        "c.commit()",
        "c.rollback(); print(list(c.execute('select * from t')))",
    ),
    "locks and queues": (
        "import queue, threading; l = threading.RLock(); l.acquire(); q = queue.Queue(); q.put(1); s = threading.Semaphore(1)",
        "l.release(); q.get(); s.acquire()",
        "l.release(); print(q.get(), s.acquire(False), s.acquire(False))\n"
        "try: l.release()\nexcept RuntimeError as error: print(error)",
    ),
    "pending tasks of an idle loop": (
        "import asyncio; loop = asyncio.new_event_loop(); q = asyncio.Queue(); t = loop.create_task(q.get())\n"
        "loop.run_until_complete(asyncio.sleep(0))",
        "q.put_nowait(8); loop.run_until_complete(t)",
        "q.put_nowait(2); print(loop.run_until_complete(t))",
    ),
    "current loop": (
        "import asyncio; loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop)",
        "asyncio.set_event_loop(None)",
        "print(asyncio.get_event_loop() is loop)",
    ),
    "trace function": (
        "import sys; names = []\ndef trace(frame, *_): names.append(frame.f_code.co_name)\nsys.settrace(trace)",
        "sys.settrace(None)",
        "print(names, sys.gettrace() is trace)",
    ),
    "trace function that raises": (
        "import sys; x = 1\ndef trace(frame, *_):\n    if frame.f_code.co_name == '_freeze': raise ValueError\n"
        "sys.settrace(trace)",
        "",
        "print(x)",
    ),
    "settings of the interpreter": (
        "import decimal, gc, sys, warnings; decimal.getcontext().prec = 5; warnings.simplefilter('error'); gc.disable(); "
        "sys.setrecursionlimit(300)",
        "decimal.getcontext().prec = 9; warnings.simplefilter('ignore'); gc.enable(); sys.setrecursionlimit(400)",
        "print(decimal.Decimal(1) / 3, gc.isenabled(), sys.getrecursionlimit())\n"
        "try: warnings.warn('w')\nexcept UserWarning: print('raised')",
    ),
    "callbacks of C": (
        "import ctypes; back = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1); a = (ctypes.c_int * 2)(1, 2)",
        "a[0] = 9",
        "print(back(6), list(a))",
    ),
    "pool of processes that is gone": (
        "import gc, multiprocessing\np = multiprocessing.get_context('fork').Pool(1); r = p.map(abs, [-1])\n"
        "p.close(); p.join(); del p; n = gc.collect()",
        "r = None",
        "print(r)",
    ),
    "executor without threads": (
        "from concurrent.futures import ThreadPoolExecutor; p = ThreadPoolExecutor(1)",
        "p.shutdown()",
        "print(p.submit(abs, -1).result())",
    ),
    "figures": (
        "import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as plt\n"
        "f, axes = plt.subplots(); l = axes.plot([1, 2])",
        "plt.close('all')",
        "print(plt.get_fignums(), axes.lines[0].get_ydata()); f.savefig('f.png')",
    ),
}


# State that the process has in the system: files, descriptors, signals, limits.
KEPT_BY_SYSTEM = {
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
    "signal handlers": (
        "import os, signal; seen = []; h = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))",
        "h = signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "os.kill(os.getpid(), signal.SIGUSR1); print(seen)",
    ),
    "working directory": (
        "import os; os.mkdir('sub'); os.chdir('sub'); open('q', 'w').close()",
        "import shutil; os.chdir('..'); shutil.rmtree('sub')",
        "print(os.getcwd(), os.listdir())",
    ),
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
    "file for reading and writing": (
        "open('x', 'w').write('abcdef'); f = open('x', 'r+'); n = f.read(2); n = f.seek(2); n = f.write('XX')",
        "f.write('YYYY'); f.flush()",
        "n = f.write('Z'); f.flush(); print(f.tell(), open('x').read())",
    ),
    "file for appending": (
        "open('x', 'w').write('abc'); f = open('x', 'a+'); n = f.write('d')",
        "f.write('YYYY'); f.flush()",
        "n = f.write('Z'); f.flush(); n = f.seek(0); print(f.read())",
    ),
    "duplicates of a descriptor": (
        "import os; open('x', 'w').write('abcdefghij'); a = os.open('x', 2); b = os.dup(a); c = os.open('x', 2)",
        "os.read(a, 3)",
        "print(os.read(a, 2), os.read(b, 2), os.read(c, 2), os.lseek(a, 0, 1))",
    ),
    "descriptor without access": (
        "import os; open('x', 'w').write('abc'); d = os.open('x', os.O_PATH)",
        "open('x', 'w').write('changed')",
        "print(open(f'/proc/self/fd/{d}').read())",
    ),
    "descriptor of a directory": (
        "import os; os.mkdir('d'); open('d/a', 'w').write('1'); d = os.open('d', 0)",
        "os.remove('d/a')",
        "print(os.listdir(d), open(os.open('a', 0, dir_fd=d)).read())",
    ),
    "closed stdout": ("import os; os.close(1)", "", "print('again')"),
    "stdout that is stderr": ("import os; n = os.dup2(2, 1)", "", "print('error')"),
    "stdout in a file": (
        "import os; f = open('x', 'w'); n = os.dup2(f.fileno(), 1)",
        "print('more')",
        "import sys; print('in the file'); n = sys.stderr.write(open('x').read())",
    ),
    "stdin from a file": (
        "import os; open('x', 'w').write('abcdefghi'); d = os.open('x', 0); os.dup2(d, 0); os.close(d); n = os.read(0, 3)",
        "os.read(0, 3)",
        "print(os.read(0, 3))",
    ),
    "named temporary file": (
        "import tempfile; f = tempfile.NamedTemporaryFile(); n = f.write(b'abc')",
        "f.close()",
        "import os; n = f.write(b'd'); n = f.seek(0); print(f.read()); f.close(); print(os.path.exists(f.name))",
    ),
    "signal handlers of a loop": (
        "import asyncio, os, signal; loop = asyncio.new_event_loop(); seen = []; asyncio.set_event_loop(loop)\n"
        "loop.add_signal_handler(signal.SIGUSR1, seen.append, 1); os.kill(os.getpid(), signal.SIGUSR1)",
        "loop.run_until_complete(asyncio.sleep(0.01)); seen.clear()",
        "os.kill(os.getpid(), signal.SIGUSR1); loop.run_until_complete(asyncio.sleep(0.01)); print(seen)",
    ),
    "removed working directory": (
        "import os; os.mkdir('s'); os.chdir('s'); os.rmdir(os.getcwd())",
        "os.chdir('/tmp')",
        "try: os.getcwd()\nexcept FileNotFoundError: print('gone')",
    ),
    "limits and priorities": (
        "import os, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 20000)); n = os.nice(3); m = os.umask(0o077)",
        "n = os.nice(2); m = os.umask(0)",
        "print(resource.getrlimit(resource.RLIMIT_FSIZE), os.nice(0), os.umask(0))",
    ),
    "library of the workspace": (
        "import ctypes, shutil, _ctypes; shutil.copy(_ctypes.__file__, 'lib.so'); library = ctypes.CDLL('./lib.so')",
        "",
        "print(library._name)",
    ),
    "sockets' files": (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.close()",
        "import os; os.remove('s')",
        "import os, stat; print(stat.S_ISSOCK(os.stat('s').st_mode))",
    ),
    "extended attributes": (
        "import os; open('a', 'w').close(); os.mkdir('d')\n"
        "try: [os.setxattr(name, 'user.n', b'1') for name in ('a', 'd')]\nexcept OSError: pass",
        "import shutil; os.remove('a'); shutil.rmtree('d')",
        "print(os.listxattr('a'), os.listxattr('d'))",
    ),
    "files in shared memory": (
        "f = open('/tmp/x', 'w+'); import os\n"
        "if os.access('/dev/shm', os.W_OK): f = open('/dev/shm/x', 'w+')\nn = f.write('abc'); f.flush()",
        "f.write('more'); f.flush()",
        "n = f.write('d'); f.flush(); print(f.tell(), open(f.name).read())",
    ),
    "signal to the process group": (
        "import os, signal",
        "h = signal.signal(signal.SIGTERM, signal.SIG_IGN); os.killpg(0, signal.SIGTERM)",
        "print('alive')",
    ),
}


def _check(session: TestSession, backend: str, setup: str, change: str, check: str) -> None:
    options = {"seed": 1, "backend": backend}
    session.reset(**options)
    assert session.run(setup).exit_code == 0
    expected = _seen(session.run(check))
    assert expected[2] == 0
    session.reset(**options)
    session.run(setup)
    snapshot = session.clone()
    # The original continues, and changes what the copy must have.
    assert session.run(change).exit_code == 0
    for _ in range(2):
        assert session.restore(snapshot).exit_code == 0
        assert _seen(session.run(check)) == expected
        session.run(change)
    session.release(snapshot)
    session.reset(**options)
    session.run(setup)
    session.clone()
    assert _seen(session.run(check)) == expected


def _seen(observation: Observation) -> tuple[str, str, int]:
    return observation.stdout, observation.stderr, observation.exit_code


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", KEPT_BY_EACH)
def test_each_backend_keeps_state(session: TestSession, provider: str, backend: str, name: str) -> None:
    if backend == "smolagents":
        if provider == "docker":
            pytest.skip("the image does not contain smolagents")
        import_extra("smolagents")
    _check(session, backend, *KEPT_BY_EACH[name])


@pytest.mark.parametrize("name", KEPT)
def test_kind_of_state_is_kept(session: TestSession, name: str) -> None:
    _check(session, "python", *KEPT[name])


@pytest.mark.every_provider
def test_state_in_the_system_is_kept(check_on_sessions: Callable[..., None]) -> None:
    check_on_sessions(lambda session, name: _check(session, "python", *KEPT_BY_SYSTEM[name]), KEPT_BY_SYSTEM)
