"""The process that runs the hidden tests of one submission, which it does not hold."""

from __future__ import annotations

import os
import random
import socket
import time
from typing import NoReturn

import msgspec

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.linux.inherited_state import renew_inherited_state
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.protocol.grading import Asserts, CaseResult, UnitTests
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import Answer, Load, PeerConnection, PeerGoneError
from coding_gym_server.test_runner.cases import run_cases
from coding_gym_server.test_runner.execution_watch import ExecutionWatch
from coding_gym_server.test_runner.messages import Executing, TestsRun, TestSubmission
from coding_gym_server.test_runner.namespace import Namespace
from coding_gym_server.test_runner.policy import TestSidePolicy
from coding_gym_server.test_runner.shared_imports import shared_imports
from coding_gym_server.workspace.layout import Layout

__all__ = ["run_tests", "test_submission"]

_MAX_MESSAGE_CHARS = 4000

_MAX_MESSAGES_CHARS = 1 << 20
"""Maximum number of characters of the messages of all tests together, with which a report stays within its limit."""


def test_submission(
    channel: Channel[TestSubmission], connection: socket.socket, tests: Asserts | UnitTests, layout: Layout
) -> NoReturn:
    """Test one submission in this process, which was forked for it; report the results, and exit.

    Args:
        channel: Channel with the server's request.
        connection: Connection with the submission.
        tests: The tests.
        layout: Directories of the submission.
    """
    try:
        # Of its own, so that what tests send to their process group does not reach the root.
        os.setsid()
        lower_priority()
        renew_inherited_state()
        os.chdir(layout.work)
        random.seed(0)
        request = channel.receive()
        watch = ExecutionWatch(lambda event: channel.send(Executing(event)), layout.writable())
        watch.install(tests)
        channel.send(run_tests(request, tests, connection))
    finally:
        os._exit(0)


def run_tests(request: TestSubmission, tests: Asserts | UnitTests, connection: socket.socket) -> TestsRun:
    """Run tests.

    Args:
        request: The submission.
        tests: The tests.
        connection: Connection with the submission.
    """
    began = time.perf_counter()
    source = tests.source if isinstance(tests, UnitTests) else "\n".join((tests.setup, *tests.cases))
    rules = TestSidePolicy(expects_stop="StopIteration" in source)
    peer = RemoteObjectEndpoint(rules)
    exchange = PeerConnection(connection, peer.answer)
    peer.attach(exchange)
    try:
        answer = exchange.ask(Load(request.code, request.entry_point, shared_imports(tests)))
        load_seconds = time.perf_counter() - began
        if not isinstance(answer, Answer):
            message = getattr(answer, "traceback", "")
            return TestsRun(is_loaded=False, is_lost=False, message=message[-_MAX_MESSAGE_CHARS:], load_seconds=load_seconds)
        try:
            namespace = Namespace(peer, exchange, rules, request.entry_point, source, answer)
        except Exception as error:  # noqa: BLE001 - the submission may return an invalid entry point
            message = f"its {request.entry_point} cannot be accessed: {type(error).__name__}"
            return TestsRun(is_loaded=False, is_lost=False, message=message, load_seconds=load_seconds)
        cases = _without_excess(run_cases(tests, namespace, exchange))
        return TestsRun(is_loaded=True, is_lost=exchange.is_broken, load_seconds=load_seconds, cases=cases)
    except PeerGoneError as error:
        return TestsRun(is_loaded=False, is_lost=True, message=str(error))


def _without_excess(cases: list[CaseResult]) -> list[CaseResult]:
    """Return results without the messages that exceed what a report can have."""
    left = _MAX_MESSAGES_CHARS
    found = []
    for case in cases:
        left -= len(case.message)
        found.append(case if left >= 0 else msgspec.structs.replace(case, message=""))
    return found
