"""Interpreters that lie about copies of themselves: they harm their own session only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from coding_gym.errors import ProtocolError, SnapshotError
from conftest import TestSession
from tests.support.side_by_side import check_side_by_side

pytestmark = pytest.mark.every_provider

_PRELUDE = """
import gc, os, signal, time
from coding_gym_server.ipc import snapshot_messages as messages
from coding_gym_server.worker.branching import freezing
from coding_gym_server.worker import worker as module
worker = next(o for o in gc.get_objects() if type(o) is module.Worker)
clone = freezing.clone_sibling
def claim(pid):
    def leave_copy(channel):
        channel.send(messages.WorkerCopied(pid))
        return False
    freezing.leave_copy = leave_copy
    worker._pid = pid
"""

ATTACKS = {
    # The first, because the server waits for their copies for many seconds, while the others take their turns.
    "the copy multiplies": (
        "def copies():\n    pids = [clone() for _ in range(5)]\n    return pids[0]\nfreezing.clone_sibling = copies"
    ),
    "the copy answers before it is asked": (
        "def early(descriptor, outputs, *, set_up):\n    set_up()\n"
        "    from coding_gym_server.ipc.channel import Channel\n    import socket\n"
        "    channel = Channel(socket.socket(fileno=descriptor))\n"
        "    for _ in range(10): channel.send(messages.WorkerCopied(1))\n    time.sleep(60)\nfreezing.wait_to_thaw = early"
    ),
    "the root is its copy": "claim(os.getppid())",
    "the first process is its copy": "claim(1)",
    "it is its own copy": "claim(os.getpid())",
    "the worker of another session is its copy": "claim(NEIGHBOR)",
    "a process that does not exist is its copy": "claim(2**22 - 1)",
    "a negative number is its copy": "claim(-1)",
    "a child is its copy": "p = os.fork()\nif p == 0: time.sleep(60)\nclaim(p)",
    "it answers with something else": "freezing.leave_copy = lambda channel: channel.send(messages.CopyAdopted())",
    "it answers with garbage": "freezing.leave_copy = lambda channel: os.write(channel.fileno(), b'\\xff' * 100) == 0",
    "it answers many times": (
        "def answer(channel):\n    for _ in range(1000): channel.send(messages.WorkerCopied(1))\nfreezing.leave_copy = answer"
    ),
    "it ends instead": "freezing.leave_copy = lambda channel: os._exit(0)",
    "it has no threads": (
        "import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "module.take_census = lambda *_: __import__('coding_gym_server').worker.branching.census.Held([], {}, [], '/', [])"
    ),
    "the copy ends at once": "freezing.wait_to_thaw = lambda *_, **__: os._exit(0)",
    "the thawed worker is another": (
        "def lie(descriptor, outputs, *, set_up):\n    from coding_gym_server.ipc.channel import Channel\n    import socket\n"
        "    channel = Channel(socket.socket(fileno=descriptor))\n    _, descriptors = channel.receive_with_descriptors()\n"
        "    channel.send(messages.WorkerCopied(1))\n"
        "    Channel(socket.socket(fileno=descriptors[0])).send(messages.WorkerCopied(1))\n    time.sleep(60)\n"
        "freezing.wait_to_thaw = lie"
    ),
    "the thawed worker ends": "freezing.restore_descriptors = lambda *_, **__: os._exit(0)",
    "the frozen worker has children": (
        "def fork(*_, **__):\n    if os.fork() == 0: time.sleep(60)\n    return real(*_, **__)\n"
        "real = module.Worker._wait_to_thaw\nmodule.Worker._wait_to_thaw = fork"
    ),
    "a fork keeps its capabilities": (
        "from coding_gym_server.isolation import session_user as user\nuser.capabilities.drop_all = lambda: None"
    ),
    "a fork joins nothing": "module.session_user.join_slot = lambda namespaces, **_: None",
    "a child of a fork keeps its capabilities": (
        "from coding_gym_server.isolation import session_user as user\nreal = user.capabilities.drop_all\n"
        "def drop():\n    if os.fork() == 0: os.setsid(), time.sleep(60)\n    real()\nuser.capabilities.drop_all = drop"
    ),
}


def _attack(open_session: Callable[[], TestSession], code: str, neighbor: int) -> None:
    with contextlib.closing(open_session()) as session:
        session.reset(seed=1)
        session.run(_PRELUDE + code.replace("NEIGHBOR", str(neighbor)))
        with contextlib.suppress(SnapshotError, ProtocolError):
            session.restore(session.clone())
            copied = session.clone()
            session.run("1", timeout=2)
            session.restore(copied)
        with contextlib.suppress(SnapshotError, ProtocolError), contextlib.closing(open_session()) as fork:
            fork.restore(session._session.fork(1)[0])
            # It is confined, or there is none.
            status = fork.run("print(open('/proc/self/status').read())", timeout=2).stdout
            assert not status or "CapPrm:\t0000000000000000" in status
        # Its next episode is like any other.
        session.reset(seed=1)
        assert session.run("print(1)").stdout == "1\n"
        session.restore(session.clone())
        assert session.run("print(2)").stdout == "2\n"


def test_lies_about_copies_harm_own_session_only(open_session: Callable[[], TestSession]) -> None:
    neighbor = open_session()
    neighbor.reset(seed=1)
    pid = int(neighbor.run("import os; x = 1; print(os.getpid())").stdout)
    kept = neighbor.clone()
    check_side_by_side(lambda name: _attack(open_session, ATTACKS[name], pid), ATTACKS)
    assert neighbor.run("print(x, os.getpid())").stdout == f"1 {pid}\n"
    neighbor.restore(kept)
    assert neighbor.run("print(x)").stdout == "1\n"


def test_copies_are_out_of_reach_of_other_sessions(open_session: Callable[[], TestSession]) -> None:
    owner, other = open_session(), open_session()
    for session in (owner, other):
        session.reset(seed=1)
    owner.run("x = 'secret'; open('file', 'w').write('secret')")
    snapshot = owner.clone()
    # By its process: every one that the kernel shows.
    attempts = other.run(
        "import glob, os\nkilled, read = [], []\n"
        "for path in glob.glob('/proc/[0-9]*'):\n"
        "    pid = int(path[6:])\n"
        "    if pid in (os.getpid(), os.getppid()): continue\n"
        "    for name in ('mem', 'environ', 'maps'):\n"
        "        try:\n            with open(f'{path}/{name}', 'rb') as f: read += [(pid, name)] * len(f.read(1))\n"
        "        except OSError: pass\n"
        "    try: os.kill(pid, 9); killed.append(pid)\n"
        "    except OSError: pass\n"
        "print(killed, read)"
    )
    assert attempts.stdout == "[] []\n"
    # By its files, wherever they are, which its own session does not read, either.
    for session in (other, owner):
        found = session.run(
            "import subprocess; print(subprocess.run('find / -path \"*.snapshots*\" 2>/dev/null', shell=True, "
            "capture_output=True, text=True).stdout)"
        ).stdout
        assert found.strip() == ""
    owner.restore(snapshot)
    assert owner.run("print(x, open('file').read())").stdout == "secret secret\n"
