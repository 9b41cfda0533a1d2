"""The process that holds a submission and runs one test beside it, in the same module, as test frameworks do.

It is forked for one test, from a root that has imported libraries only. The test arrives when the submission has been loaded.
Whatever this process reports is a claim of the submission: the server sends canaries, tests that must fail, to judge it.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import socket
import sys
import traceback
import types

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.submission import faithful_frameworks
from coding_gym_server.submission.faithful_messages import (
    CollectTests,
    Framework,
    FromFaithfulProcess,
    Loaded,
    LoadFailed,
    LoadSubmission,
    RunOutcome,
    RunTest,
    TestRan,
    TestsCollected,
    ToFaithfulProcess,
    to_faithful_process,
)
from coding_gym_server.submission.forked_process import ForkedProcess
from coding_gym_server.workspace.layout import Layout

__all__ = ["FaithfulProcess"]

_MODULE = "solution"
_MAX_MESSAGE_CHARS = 2000


class FaithfulProcess(ForkedProcess):
    """Holds one submission and one test."""

    def __init__(self, layout: Layout, *, profile: IsolationProfile, prepared: int | None) -> None:
        super().__init__(layout, profile=profile, prepared=prepared)
        self._code = ""
        self._module = types.ModuleType(_MODULE)
        self._module.__file__ = f"{layout.work}/{_MODULE}.py"

    def prepare(self) -> None:
        os.environ.update(self._layout.variables())
        sys.argv = [f"{_MODULE}.py"]

    def _serve(self, connection: socket.socket) -> None:
        # Not in the root, which imports libraries.
        sys.path.insert(0, "")
        sys.modules["__main__"] = types.ModuleType("__main__")
        channel = Channel(connection, to_faithful_process)
        with contextlib.suppress(EOFError, OSError):
            while True:
                channel.send(self._answer(channel.receive()))

    def _answer(self, request: ToFaithfulProcess) -> FromFaithfulProcess:
        match request:
            case LoadSubmission(code, entry_point):
                return self._load(code, entry_point)
            case CollectTests(source, framework):
                return self._collect(source, framework)
            case RunTest():
                return TestRan(request.token, self._run(request))

    def _load(self, code: str, entry_point: str | None) -> Loaded | LoadFailed:
        assert self._module.__file__ is not None
        self._code = code if code.endswith("\n") else f"{code}\n"
        try:
            with open(self._module.__file__, "w", encoding="utf-8") as file:
                file.write(self._code)
            sys.modules[_MODULE] = self._module
            self._execute(self._code)
            if entry_point is not None and entry_point not in vars(self._module):
                return LoadFailed(f"the submission does not define {entry_point!r}")
        except BaseException as error:  # noqa: BLE001 - submissions raise anything
            return LoadFailed(_describe(error))
        return Loaded()

    def _collect(self, source: str, framework: Framework) -> TestsCollected:
        try:
            self._execute_tests(source)
            return TestsCollected(faithful_frameworks.collect(self._module, framework))
        except BaseException:  # noqa: BLE001 - tests raise anything
            return TestsCollected(None)

    def _run(self, request: RunTest) -> RunOutcome:
        try:
            self._execute_tests(request.source)
            if request.test is None:
                return RunOutcome.PASSED
            return faithful_frameworks.run(self._module, request.framework, request.test, request.earlier)
        except AssertionError:
            return RunOutcome.FAILED
        except BaseException:  # noqa: BLE001 - tests and submissions raise anything
            return RunOutcome.ERROR

    def _execute_tests(self, source: str) -> None:
        """Execute tests as the continuation of the submission's file."""
        self._execute(source, line=len(source_lines(self._code)))

    def _execute(self, source: str, *, line: int = 0) -> None:
        path = str(self._module.__file__)
        text = self._code + source if line else source
        linecache.cache[path] = (len(text), None, source_lines(text), path)
        exec(compile("\n" * line + source, path, "exec", dont_inherit=True), self._module.__dict__)


def _describe(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except BaseException:  # noqa: BLE001 - the submission's exceptions may fail in __str__
        text = type(error).__name__
    return text[:_MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
