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
from coding_gym_server.remote_objects.exchange import Answer, PeerConnection, PeerGoneError, Reply, Request
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.remote_objects.values import Encoder
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
            with contextlib.suppress(PeerGoneError):
                _Player(connection).serve()
    finally:
        os._exit(0)


class _Player:
    """Plays a submission that defines ``solve``.

    Args:
        connection: Connection with the tests.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._peer = RemoteObjectEndpoint(AccessPolicy(), self._answer)
        exchange = PeerConnection(connection, self._peer.answer)
        self._peer.attach(exchange)
        self.serve = exchange.serve

    def _answer(self, _: Request) -> Reply:
        return Answer(Encoder(self._peer.export).encode(_solve))


def _solve(value: object, _: object) -> object:
    return value
