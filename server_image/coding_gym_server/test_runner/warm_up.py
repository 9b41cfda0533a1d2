"""Warm-up of the process that test runners are forked from."""

from __future__ import annotations

import contextlib
import linecache
import os
import socket
from collections.abc import Iterable
from typing import NoReturn

from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import Answer, PeerConnection, PeerGoneError
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.test_runner.messages import TestSubmission
from coding_gym_server.test_runner.runner import run_tests

__all__ = ["warm_up"]

_RUNS = 12
"""Number of runs of each kind of tests: CPython specializes code for its operands after several runs."""

_TESTS = (
    Asserts(
        cases=("def check(candidate):\n    assert candidate([1, 2], 'a') == [1, 2]\ncheck(solve)", "assert not solve([], 0)")
    ),
    UnitTests(
        source="import unittest\nclass Test(unittest.TestCase):\n    def test_it(self): self.assertEqual(solve(1, 2), 1)"
    ),
)


def warm_up() -> None:
    """Run typical tests against a process that plays a submission.

    Test runners inherit the interpreter state that this creates, such as caches and specialized code; otherwise each of them
    would have to copy memory pages to create it.
    """
    pairs = [socket.socketpair() for _ in range(_RUNS * len(_TESTS))]
    pid = os.fork()
    if pid == 0:
        _play_submissions(pairs)
    for number, (ours, theirs) in enumerate(pairs):
        theirs.close()
        run_tests(TestSubmission("", "solve"), _TESTS[number % len(_TESTS)], ours)
        ours.close()
    os.waitpid(pid, 0)
    linecache.clearcache()


def _play_submissions(pairs: Iterable[tuple[socket.socket, socket.socket]]) -> NoReturn:
    try:
        for ours, _ in pairs:
            ours.close()
        for _, connection in pairs:
            _play_submission(connection)
    finally:
        os._exit(0)


def _play_submission(connection: socket.socket) -> None:
    """Play a submission that defines ``solve``, until the tests have ended."""
    peer = RemoteObjectEndpoint(AccessPolicy(), lambda _: Answer(peer.encode(_solve)))
    exchange = PeerConnection(connection, peer.answer)
    peer.attach(exchange)
    with contextlib.suppress(PeerGoneError):
        exchange.serve()


def _solve(value: object, _: object) -> object:
    return value
