"""Forks of a session attack it, each other, and the sandbox."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from conftest import TestSession
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import processes_of, server_of

pytestmark = pytest.mark.every_provider

_PRELUDE = """
import ctypes, glob, os, signal, socket, subprocess, sys
secret = 'of ' + NAME
open('/home/user/own', 'w').write(secret)
open('/tmp/own', 'w').write(secret)
open('/dev/shm/own', 'w').write(secret)
libc = ctypes.CDLL(None, use_errno=True)
others = [int(path[6:]) for path in glob.glob('/proc/[0-9]*') if int(path[6:]) != os.getpid()]
def tried(action):
    try: return action()
    except OSError: return None
"""

ATTACKS = {
    "files at the same paths": (
        "print({open(f'{path}/own').read() for path in ('/home/user', '/tmp', '/dev/shm')} == {secret})"
    ),
    "files of others anywhere": (
        "pruned = ' '.join(f'-path {path} -prune -o' for path in ('/proc', '/sys', '/usr', '/run/covered'))\n"
        "found = subprocess.getoutput(f'find / {pruned} -name own -print 2>/dev/null').split()\n"
        "print(set(found) <= {'/dev/shm/own', '/home/user/own', '/tmp/own'})"
    ),
    "files through processes": (
        "print([pid for pid in others for name in ('root/home/user/own', 'cwd', 'fd/0')\n"
        "       if tried(lambda: os.stat(f'/proc/{pid}/{name}'))] == [])"
    ),
    "memory and environment of processes": (
        "print([pid for pid in others for name in ('mem', 'environ', 'maps')\n"
        "       if tried(lambda: open(f'/proc/{pid}/{name}', 'rb').read(1))] == [])"
    ),
    "signals": "print([pid for pid in others if tried(lambda: os.kill(pid, signal.SIGTERM) is None)] == [])",
    "signals to all": "signal.signal(signal.SIGTERM, signal.SIG_IGN); tried(lambda: os.kill(-1, signal.SIGTERM)); print(True)",
    "signals to process groups": (
        "print([pid for pid in others if pid > 1 and tried(lambda: os.killpg(pid, signal.SIGTERM) is None)] == [])"
    ),
    "priorities": "print([pid for pid in others if tried(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19) is None)] == [])",
    "namespaces of processes": (
        "def join(pid, name):\n    with open(f'/proc/{pid}/ns/{name}') as ns: return libc.setns(ns.fileno(), 0) == 0\n"
        "print([pid for pid in others for name in ('user', 'mnt', 'ipc') if tried(lambda: join(pid, name))] == [])"
    ),
    "its own namespaces again": (
        "def join(name):\n    with open(f'/proc/self/ns/{name}') as ns: return libc.setns(ns.fileno(), 0)\n"
        "print([join(name) for name in ('user', 'mnt', 'ipc')] == [-1, -1, -1], ctypes.get_errno() == 1)"
    ),
    "new namespaces and mounts": (
        "print([call for call in (lambda: libc.unshare(0x10000000), lambda: libc.unshare(0x20000), "
        "lambda: libc.mount(b'/tmp', b'/home/user', None, 4096, None), lambda: libc.umount2(b'/home/user', 2), "
        "lambda: libc.chroot(b'/proc')) if call() == 0] == [])"
    ),
    "capabilities": (
        "lines = [line.split() for line in open('/proc/self/status') if line.startswith(('CapPrm', 'CapEff'))]\n"
        "print({mask for _, mask in lines} == {'0' * 16})"
    ),
    "abstract sockets": (
        "def connect():\n    s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + 'of the first'); return True\n"
        "print(not tried(connect))"
    ),
    "terminals": "print(os.listdir('/dev/pts') == ['ptmx'])",
    "descriptors of directories": (
        "print([fd for fd in os.listdir('/proc/self/fd') if tried(lambda: os.stat('own', dir_fd=int(fd)))\n"
        "       and open(f'/proc/self/fd/{fd}/own').read() != secret] == [])"
    ),
}


def _forks(session: TestSession, open_session: Callable[[], TestSession], count: int) -> list[TestSession]:
    forks = []
    for ticket in session._session.fork(count):
        fork = open_session()
        forks.append(fork)
        fork._session.ask_restore(ticket)
        fork._session.wait(timeout=30)
    return forks


def test_forks_are_isolated(open_session: Callable[[], TestSession]) -> None:
    first = open_session()
    first.reset(seed=1)
    first.run("import os, socket; d = os.open('.', os.O_RDONLY); x = 1; open('early', 'w').write('before')")
    forks = _forks(first, open_session, 2)
    nested = _forks(forks[0], open_session, 1)[0]
    family = {"the first": first, "a fork": forks[0], "another": forks[1], "a fork of a fork": nested}
    listening = "s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + secret); s.listen()"
    for name, session in family.items():
        prepared = session.run(_PRELUDE.replace("NAME", repr(name)) + (listening if session is first else ""))
        assert (prepared.stderr, prepared.exit_code) == ("", 0), name
    # A session can signal its own forks.
    for attacker in ("another", "a fork of a fork"):
        for attack, code in ATTACKS.items():
            result = family[attacker].run(code)
            assert set(result.stdout.split()) == {"True"}, (attacker, attack, result)
    for name, session in family.items():
        assert (
            session.run("print(secret, x, open('own').read(), open('early').read())").stdout
            == f"of {name} 1 of {name} before\n"
        )


def test_bombs_of_forks_end_with_their_steps(open_session: Callable[[], TestSession]) -> None:
    first = open_session()
    first.reset(seed=1)
    first.run("x = 1")
    fork, sibling = _forks(first, open_session, 2)
    bomb = fork.run(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "try:\n    while True:\n        if os.fork() == 0: time.sleep(30); os._exit(0)\n"
        "except OSError: pass\ntime.sleep(30)",
        timeout=2,
    )
    assert bomb.metadata.outcome in ("timeout", "killed")
    for session in (first, sibling):
        assert session.run("print(x)").stdout == "1\n"
    # A new interpreter, as confined as before.
    assert fork.run("print('x' in dir())").stdout == "False\n"
    status = fork.run("print(open('/proc/self/status').read())").stdout
    assert "CapPrm:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    first.close()
    for session in (fork, sibling):
        assert session.run("print(1)").stdout == "1\n"


def test_deaths_of_forks_leave_others_running(open_session: Callable[[], TestSession]) -> None:
    first = open_session()
    first.reset(seed=1)
    first.run("x = 1; open('f', 'w').write('f')")
    forks = _forks(first, open_session, 3)
    assert forks[0].run("import os; os._exit(3)").metadata.outcome == "killed"
    assert forks[1].run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").metadata.outcome == "killed"
    background = (
        "import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True); open('mine', 'w').write('1')"
    )
    for fork in forks:
        fork.run(background)
    for fork in (forks[0], first):
        fork.close()
    time.sleep(0.2)
    for fork in forks[1:]:
        assert fork.run("print(p.poll(), sorted(__import__('os').listdir()))").stdout == "None ['f', 'mine']\n"


def test_forks_end_with_a_server_that_is_killed() -> None:
    with contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=(), sessions=4))) as sandbox:
        first = TestSession(sandbox)
        first.run("x = 1")
        forks = _forks(first, lambda: TestSession(sandbox), 2)
        assert forks[0].run("print(x)").stdout == "1\n"
        processes = processes_of(sandbox)
        for server in {server_of(sandbox), processes[0]}:
            server.kill()
        assert gone_within(processes) == []
        for session in (first, *forks):
            session.close()
