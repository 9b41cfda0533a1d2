"""The process that runs hidden tests. It does not hold submissions, and persists across them.

Requests of the server arrive over one channel; each includes a separate connection with a submission.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import random
import signal
import socket
import sys
import tempfile
import time

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux.forking import die_with_parent
from coding_gym_server.protocol.grading import UnitTests
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import Answer, Load, PeerConnection, PeerGoneError
from coding_gym_server.test_runner.cases import run_cases
from coding_gym_server.test_runner.messages import BorrowFiles, FilesBorrowed, RunTests, TestsRun, ToTestRunner
from coding_gym_server.test_runner.namespace import Namespace
from coding_gym_server.test_runner.policy import TestSidePolicy
from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["TestRunner"]

_RECURSION_LIMIT = 5000
"""Recursion limit: values from a submission may be nested more deeply than the submission itself could recurse."""


_MAX_MESSAGE_CHARS = 4000


class TestRunner:
    """Tests submissions one after the other, until the server closes the channel.

    Args:
        channel: Channel with the server's requests.
        directory: Directory of its submissions, None if it borrows their files.
        profile: Isolation profile of sessions.
        parent: Process id of the zygote, whose end ends a test that never does.
    """

    def __init__(
        self, channel: Channel[ToTestRunner], directory: str | None, profile: IsolationProfile, *, parent: int
    ) -> None:
        self._channel = channel
        self._parent = parent
        self._directory = directory
        self._profile = profile

    def run(self) -> None:
        """Serve requests until the channel closes, then exit the process."""
        with contextlib.suppress(EOFError, ConnectionError):
            self._set_up()
            while True:
                for request, descriptors in self._channel.requests():
                    assert isinstance(request, RunTests)
                    self._channel.send(self._run_tests(request, socket.socket(fileno=descriptors[0])))
        os._exit(0)

    def _set_up(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._directory is None:
            self._layout = self._borrow_files()
            self._profile.apply_to_test_runner(self._layout.work, self._layout.temporary)
        else:
            layout = Layout.below(self._directory)
            self._layout = layout.at(layout.work)
            self._profile.apply_to_test_runner(self._directory)
        die_with_parent(self._parent)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        # What a submission can write is not a source of modules, neither here nor in programs that tests start.
        writable = {"", self._layout.work, self._layout.temporary}
        sys.path[:] = [path for path in sys.path if path not in writable]
        os.environ.update(PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1")
        sys.setrecursionlimit(_RECURSION_LIMIT)
        gc.freeze()

    def _borrow_files(self) -> Layout:
        """Become the server's user, with access to the files of the submissions; return their directories."""
        request, descriptors = next(self._channel.requests())
        assert isinstance(request, BorrowFiles)
        assert self._profile.users is not None
        try:
            directories = [PRIVATE.work, PRIVATE.temporary]
            work, temporary = session_user.borrow(self._profile.users, request.user, descriptors[0], directories)
        except OSError as error:
            self._channel.send(Failed(f"tests cannot access the files of submissions: {error}"))
            os._exit(1)
        close_all(descriptors)
        self._channel.send(FilesBorrowed())
        return msgspec.structs.replace(PRIVATE, temporary=temporary).at(work)

    def _run_tests(self, request: RunTests, connection: socket.socket) -> TestsRun:
        began = time.perf_counter()
        source = request.tests.source if isinstance(request.tests, UnitTests) else "".join(request.tests.cases)
        rules = TestSidePolicy(expects_stop="StopIteration" in source)
        peer = RemoteObjectEndpoint(rules)
        exchange = PeerConnection(connection, peer.answer)
        peer.attach(exchange)
        try:
            os.chdir(self._layout.work)
            os.environ.update(self._layout.directories())
            tempfile.tempdir = self._layout.temporary
            random.seed(0)
            answer = exchange.ask(Load(request.code, request.entry_point))
            load_seconds = time.perf_counter() - began
            if not isinstance(answer, Answer):
                message = getattr(answer, "traceback", "") or getattr(answer, "text", "")
                return TestsRun(
                    is_loaded=False, is_lost=False, message=message[-_MAX_MESSAGE_CHARS:], load_seconds=load_seconds
                )
            try:
                namespace = Namespace(peer, exchange, rules, request.entry_point, answer)
            except Exception as error:  # noqa: BLE001 - the submission may return an invalid entry point
                message = f"its {request.entry_point} cannot be accessed: {type(error).__name__}"
                return TestsRun(is_loaded=False, is_lost=False, message=message, load_seconds=load_seconds)
            cases = run_cases(request.tests, namespace, exchange, rules)
            return TestsRun(is_loaded=True, is_lost=exchange.is_broken, load_seconds=load_seconds, cases=cases)
        except PeerGoneError as error:
            return TestsRun(is_loaded=False, is_lost=True, message=str(error))
        finally:
            exchange.close()
            linecache.clearcache()
