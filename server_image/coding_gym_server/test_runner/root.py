"""Root of test runners: forks one for each submission, and ends it with all its processes.

It has the modules that tests import and the compiled tests. It executes neither tests nor anything that a submission sends, so
that whatever a test runner does, the next one starts from the same state.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.library_messages import ImportLibraries, LibrariesImported
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import oom, user_namespaces
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.process_root import INIT, ProcessRoot
from coding_gym_server.packages.importing import import_installed
from coding_gym_server.test_runner.cases import compile_ahead
from coding_gym_server.test_runner.messages import (
    BorrowFiles,
    EndTests,
    FilesBorrowed,
    RunTests,
    TestsEnded,
    ToTestRunnerRoot,
    test_runner_requests,
)
from coding_gym_server.test_runner.runner import test_submission
from coding_gym_server.test_runner.warm_up import warm_up
from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["TestRunnerRoot"]

_RECURSION_LIMIT = 5000
"""Recursion limit: values from a submission may be nested more deeply than the submission itself could recurse."""


class TestRunnerRoot(ProcessRoot):
    """Forks test runners one after the other, until the server closes the channel.

    Args:
        channel: Channel with the server's requests.
        directory: Directory of the submissions, None if it borrows their files.
        profile: Isolation profile of sessions.
        settle: Called after imports, before forks: prepares the objects that exist for them.
    """

    def __init__(
        self,
        channel: Channel[ToTestRunnerRoot],
        directory: str | None,
        profile: IsolationProfile,
        *,
        settle: Callable[[], None],
    ) -> None:
        super().__init__(scopes_signals=profile.scopes_signals, adopted_by_init=False)
        self._channel = channel
        self._directory = directory
        self._profile = profile
        self._settle = settle
        self._failure = ""

    def run(self) -> None:
        """Serve until the server exits. Returns only in a forked test runner at its end, never in the root."""
        test_runner = None
        with contextlib.suppress(EOFError, ConnectionError):
            self._set_up()
            while test_runner is None:
                for request, descriptors in self._channel.requests():
                    test_runner = self._handle(request, descriptors)
                    if test_runner is not None:
                        break
        if test_runner is not None:
            test_runner()
        self._kill()
        self._reap_all()
        os._exit(0)

    def _set_up(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        adopt_orphans()
        if self._directory is None:
            self._layout = self._borrow_files()
        else:
            self._layout = Layout.below(self._directory)
        user_namespaces.allow_inspection()
        self._rank = oom.Rank()
        self._profile.apply_to_test_runners(self._layout.work, self._layout.temporary)
        self._prepared = self._profile.prepare_workers()
        if os.getpid() == INIT or self._profile.users is None:
            user_namespaces.forbid_inspection()
        self._set_up_interpreter()

    def _borrow_files(self) -> Layout:
        """Become the user of the tests, with access to the files of the submissions; return their directories."""
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

    def _set_up_interpreter(self) -> None:
        """Set up the state that all test runners share."""
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        # What a submission can write is not a source of modules, neither here nor in programs that tests start.
        writable = {"", self._layout.work, self._layout.temporary}
        sys.path[:] = [path for path in sys.path if path not in writable]
        os.environ.update(self._layout.directories(), PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1")
        tempfile.tempdir = self._layout.temporary
        sys.setrecursionlimit(_RECURSION_LIMIT)
        warm_up()
        gc.collect()
        self._settle()

    def _handle(self, request: ToTestRunnerRoot, descriptors: list[int]) -> Callable[[], NoReturn] | None:
        """Handle a request; return the test runner in the forked process, None in the root."""
        match request:
            case RunTests(tests):
                compile_ahead(tests)
                return self._fork(request, descriptors)
            case ImportLibraries(names):
                import_installed(names)
                self._settle()
                self._channel.send(LibrariesImported())
            case EndTests():
                self._kill()
                self._reap_all()
                self._channel.send(TestsEnded(self._failure))
        return None

    def _fork(self, request: RunTests, descriptors: list[int]) -> Callable[[], NoReturn] | None:
        root = os.getpid()
        self._failure = ""
        try:
            with self._rank.of_workers():
                pid = fork_when_possible(fork_bare, on_wait=self._reap)
            if pid == 0:
                self._channel.close()
                self._rank.close()
                die_with_parent(root)
                user_namespaces.allow_inspection()
                self._profile.apply_to_worker(self._prepared)
                connection, channel = (socket.socket(fileno=descriptor) for descriptor in descriptors)
                requests = Channel(channel, test_runner_requests)
                return functools.partial(test_submission, requests, connection, request.tests, self._layout)
        except OSError as error:
            self._failure = f"cannot fork a test runner: {error}"
        close_all(descriptors)
        return None
