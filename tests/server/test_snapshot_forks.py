"""Forks of sessions: several continue from one state at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from coding_gym.errors import CapacityError, SnapshotError
from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol import ResetOptions
from conftest import TestSession
from tests.support.timing import eventually


@pytest.mark.every_provider
def test_snapshot_of_a_session_in_use_is_forked(open_session: Callable[[], TestSession]) -> None:
    first, second = open_session(), open_session()
    first.reset(seed=1)
    second.reset(seed=2)
    first.run("x = 1")
    second.run("x = 2")
    snapshot = first.clone()
    second.restore(snapshot)
    assert second.run("print(x); x = 3").stdout == "1\n"
    assert first.run("print(x)").stdout == "1\n"
    # Once the first has begun another episode, the second takes its place.
    first.reset(seed=3)
    second.restore(snapshot)
    assert second.run("print(x)").stdout == "1\n"
    first.close()
    assert second.run("print(x)").stdout == "1\n"


def test_connection_of_a_fork_restores_only(open_session: Callable[[], TestSession], sandbox: Sandbox) -> None:
    first = open_session()
    first.reset(seed=1)
    first.run("x = 1")
    (ticket,) = first._session.fork(1)
    with contextlib.closing(sandbox.connect(fork_of=ticket)) as fork:
        fork.ask_reset(ResetOptions())
        with pytest.raises(CapacityError, match="fork"):
            fork.wait(timeout=30)
        fork.ask_restore(ticket)
        fork.wait(timeout=30)
        fork.ask_step("print(x)")
        assert fork.wait(timeout=30).observation.stdout == "1\n"
        # It was for one session.
        with pytest.raises(SnapshotError, match="does not exist"):
            first.restore(ticket)


@pytest.mark.every_provider
def test_unused_forks_end_with_their_session(open_session: Callable[[], TestSession]) -> None:
    first, other = open_session(), open_session()
    first.reset(seed=1)
    other.reset(seed=1)
    tickets = first._session.fork(3)
    other.restore(tickets[0])
    first.close()
    # The server may not know yet that the connection is closed.
    with pytest.raises(SnapshotError, match=r"does not exist|released"):
        eventually(lambda: other.restore(tickets[1]) is None)
    assert other.run("print(1)").stdout == "1\n"


def test_forks_can_follow_forks_at_once(open_session: Callable[[], TestSession]) -> None:
    first, *others = (open_session() for _ in range(4))
    first.reset(seed=1)
    for _ in range(30):
        # The worker that is prepared for one more is still being forked when the last ticket is used.
        for other, ticket in zip(others, first._session.fork(3), strict=True):
            other._session.ask_restore(ticket)
        for other in others:
            other._session.wait(timeout=30)
    assert first.run("print(1)").stdout == "1\n"


def test_name_of_a_worker_does_not_end_its_relatives(open_session: Callable[[], TestSession]) -> None:
    first, fork = open_session(), open_session()
    first.reset(seed=1)
    first.run("x = 1")
    (ticket,) = first._session.fork(1)
    fork.restore(ticket)
    looping = r"import ctypes; ctypes.CDLL(None).prctl(15, b'\xff', 0, 0, 0)" + "\nwhile True: pass"
    assert fork.run(looping, timeout=1).metadata.outcome == "timeout"
    assert [session.run("print(x)").stdout for session in (first, fork)] == ["1\n", "1\n"]
    (nested,) = fork._session.fork(1)
    first.restore(nested)
    assert first.run("print(x)").stdout == "1\n"


def test_hidden_sibling_of_a_fork_is_no_process_of_its_origin(open_session: Callable[[], TestSession]) -> None:
    first, fork, nested = (open_session() for _ in range(3))
    first.reset(seed=1)
    fork.restore(first._session.fork(1)[0])
    nested.restore(fork._session.fork(1)[0])
    # A child of the worker's parent, which may not be inspected.
    sibling = """
import ctypes, os, time
libc, (reader, writer) = ctypes.CDLL(None), os.pipe()
if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
    libc.prctl(4, 0, 0, 0, 0)
    while True:
        os.write(writer, b"x")
        time.sleep(0.1)
os.close(writer)
print(os.read(reader, 1))
"""
    assert nested.run(sibling).stdout == "b'x'\n"
    # The origin can be copied, and ends its own processes only.
    (ticket,) = fork._session.fork(1)
    fork.restore(ticket)
    assert fork.run("print(1)").stdout == "1\n"
    assert nested.run("while (found := os.read(reader, 4096)): break\nprint(os.read(reader, 1))").stdout == "b'x'\n"
