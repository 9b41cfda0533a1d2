"""State that cannot be copied: the snapshot is refused with the reasons, and the episode continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coding_gym.errors import SnapshotError
from conftest import TestSession

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
    "terminal": ("import pty; ends = pty.openpty()", "/dev/pts/"),
    "private mapping": (
        "import mmap; open('m', 'w').write('abc'); f = open('m', 'r+'); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)",
        "a memory mapping of",
    ),
    "array in a file": ("import numpy as np; m = np.memmap('m', mode='w+', shape=(9,))", "shared memory mappings"),
    "temporary file without a name": ("import tempfile; f = tempfile.TemporaryFile()", "the deleted file"),
    "new database": ("import sqlite3; c = sqlite3.connect('d.db')", "the SQLite database"),
    "lock on a file": ("import fcntl; f = open('l', 'w'); fcntl.flock(f, fcntl.LOCK_EX)", "a lock on"),
    "lock of the process": (
        "import fcntl; f = open('l', 'w'); g = open('l'); fcntl.lockf(f, fcntl.LOCK_EX)",
        "a lock on",
    ),
    "file that became unreadable": ("import os; f = open('c', 'w'); os.chmod('c', 0)", "cannot be opened again"),
    "file in a closed directory": (
        "import os; os.mkdir('d'); f = open('d/x', 'w'); os.chmod('d', 0)",
        "cannot be opened again",
    ),
    "working directory that became inaccessible": (
        "import os; os.mkdir('s'); os.chdir('s'); os.chmod('.', 0)",
        "the working directory",
    ),
    "directory listed in part": (
        "import os; [open(f'{n}', 'w').close() for n in range(3)]; s = os.scandir(); n = next(s)",
        "listed in part",
    ),
    "files about the process": ("import os; f = os.open('/proc/self/status', 0); n = os.read(f, 5)", "about this process"),
    "pending signals": (
        "import os, signal; h = signal.signal(signal.SIGUSR1, print)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)",
        "pending (SIGUSR1)",
    ),
    "few descriptors": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "a limit of 64 open files",
    ),
    "replaced function of os": ("import os; os.getcwd = lambda: 1 / 0", "cannot be listed"),
    "selector": ("import selectors; s = selectors.DefaultSelector()", "[eventpoll]"),
    "loop with another selector": (
        "from selectors import *; import asyncio; loop = asyncio.SelectorEventLoop(SelectSelector()); s = EpollSelector()",
        "a socket",
    ),
    "queue between processes": (
        "import multiprocessing; q = multiprocessing.get_context('fork').SimpleQueue()",
        "shared memory mappings",
    ),
    "idle threads": (
        "from concurrent.futures import ThreadPoolExecutor; p = ThreadPoolExecutor(1); n = p.submit(abs, 1).result()",
        "1 running threads",
    ),
    "watchdog of tracebacks": ("import faulthandler; faulthandler.dump_traceback_later(1000)", "not of Python"),
}


@pytest.mark.every_provider
def test_kind_of_state_is_refused(check_on_sessions: Callable[..., None]) -> None:
    def check(session: TestSession, name: str) -> None:
        setup, reason = REFUSED[name]
        session.reset(seed=1)
        assert session.run(f"x = 1\n{setup}").exit_code == 0
        with pytest.raises(SnapshotError) as refused:
            session.clone()
        assert any(reason in each for each in refused.value.reasons), refused.value.reasons
        assert session.run("print(x)").stdout == "1\n"

    check_on_sessions(check, REFUSED)


def test_all_reasons_are_reported(session: TestSession) -> None:
    session.reset(seed=1)
    session.run(" ; ".join(REFUSED[name][0] for name in ("pipe", "alarm", "shared mapping")))
    with pytest.raises(SnapshotError) as refused:
        session.clone()
    assert len(refused.value.reasons) == 4


def test_backends_with_kernels_are_refused(session: TestSession) -> None:
    session.reset(seed=1, backend="bash")
    with pytest.raises(SnapshotError, match="replay"):
        session.clone()


def test_running_process_is_refused(session: TestSession) -> None:
    session.reset(seed=1)
    process = session.http.processes.start("sleep 60")
    with pytest.raises(SnapshotError, match="1 processes run beside"):
        session.clone()
    process.kill()
    process.wait()
    assert session.clone()


def test_attempt_ends_no_locks(session: TestSession) -> None:
    session.reset(seed=1)
    session.run("import fcntl, subprocess, sys; f = open('l', 'w'); g = open('l'); fcntl.lockf(f, fcntl.LOCK_EX)")
    with pytest.raises(SnapshotError):
        session.clone()
    other = "import fcntl; fcntl.lockf(open('l', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    code = f"print(subprocess.run([sys.executable, '-c', {other!r}], stderr=subprocess.DEVNULL).returncode)"
    assert session.run(code).stdout == "1\n"
