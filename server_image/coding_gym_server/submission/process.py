"""The process that holds a submission: runs its source code, and performs the tests' requests on its objects.

It is forked for one submission and ends with it. It has neither the tests nor the channel that carries verdicts.
"""

from __future__ import annotations

import atexit
import contextlib
import linecache
import os
import random
import socket
import sys
import threading
import traceback
import types
from typing import Any

import msgspec

from coding_gym_server.ipc.streams import flush_streams, open_stream
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import (
    SUBMISSION_MODULE,
    Answer,
    Call,
    GetGlobal,
    Load,
    PeerConnection,
    PeerGoneError,
    Reply,
    Request,
    RunProgram,
)
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.remote_objects.values import Tag
from coding_gym_server.submission.forked_process import ForkedProcess
from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["SubmissionProcess", "warm_up"]

_FILE = "<submission>"
_WARM_UP_RUNS = 20
"""Number of warm-up runs: CPython specializes code for its operands after several runs."""


class SubmissionProcess(ForkedProcess):
    """Holds one submission."""

    def __init__(self, layout: Layout, *, profile: IsolationProfile, prepared: int | None) -> None:
        super().__init__(layout, profile=profile, prepared=prepared)
        self._module = types.ModuleType(SUBMISSION_MODULE)
        self._peer = RemoteObjectEndpoint(_SubmissionRules(), self._answer)

    def prepare(self) -> None:
        os.environ.update(self._layout.variables())
        sys.argv = [""]

    def _serve(self, connection: socket.socket) -> None:
        random.seed(0)
        peer = PeerConnection(connection, self._answer_and_flush)
        self._peer.attach(peer)
        with contextlib.suppress(PeerGoneError):
            peer.serve()

    def _answer_and_flush(self, request: Request) -> Reply:
        reply = self._peer.answer(request)
        # This may be the last request.
        flush_streams()
        return reply

    def _answer(self, request: Request) -> Reply:
        match request:
            case Load(code, entry_point):
                return self._load(code, entry_point)
            case GetGlobal(name):
                return self._global(name)
            case RunProgram(code, stdin):
                _run_program(code, stdin)
        raise ValueError(type(request).__name__)

    def _load(self, code: str, entry_point: str | None) -> Reply:
        _remember_source(code)
        sys.modules[SUBMISSION_MODULE] = self._module
        self._module.__file__ = os.path.abspath(f"{SUBMISSION_MODULE}.py")
        exec(compile(code, _FILE, "exec", dont_inherit=True), self._module.__dict__)
        if entry_point is None:
            return Answer(None)
        if not hasattr(self._module, entry_point):
            message = f"the submission does not define {entry_point!r}"
            raise NameError(message)
        return self._global(entry_point)

    def _global(self, name: str) -> Reply:
        return Answer(self._peer.encode(vars(self._module)[name] if name else self._module))


def warm_up() -> None:
    """Run typical requests in the process that submissions are forked from.

    Submissions inherit the interpreter state that this creates, such as caches and specialized code; otherwise each of them
    would have to copy memory pages to create it.
    """
    arguments = msgspec.Raw(msgspec.msgpack.encode([[1, "a", [Tag.LIST, [1, 2]]], {}]))
    for _ in range(_WARM_UP_RUNS):
        process = SubmissionProcess(PRIVATE, profile=IsolationProfile(), prepared=None)
        process._peer.attach(PeerConnection(socket.socket(), process._answer_and_flush))
        process._answer_and_flush(Load("def solve(*values): return values", "solve"))
        process._answer_and_flush(Call([Tag.BACK, 0], arguments))
    linecache.cache.pop(_FILE, None)
    del sys.modules[SUBMISSION_MODULE]


class _SubmissionRules(AccessPolicy):
    """Access policy of a submission; its tracebacks start with the submission's own lines."""

    def traceback(self, error: BaseException) -> list[str]:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
            trace = trace.tb_next
        try:
            return traceback.format_exception(error if trace is None else error.with_traceback(trace))
        except BaseException:  # noqa: BLE001 - the submission's exceptions may fail in __str__
            return []


def _run_program(code: str, stdin: str) -> None:
    """Run a program, and exit the process with its exit code."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(stdin.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    sys.stdin = open_stream(0)
    _remember_source(code)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = ["main.py"]
    exit_code = 1
    try:
        exec(compile(code, _FILE, "exec", dont_inherit=True), main.__dict__)
        exit_code = 0
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises ends it
        sys.stderr.write("".join(_SubmissionRules().traceback(error)))
    finally:
        _end(exit_code)


def _end(exit_code: int) -> None:
    """Exit as the interpreter does: wait for non-daemon threads, then run the exit handlers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        flush_streams()
        os._exit(exit_code)


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _remember_source(code: str) -> None:
    """Register the source code for tracebacks and ``inspect``."""
    linecache.cache[_FILE] = (len(code), None, source_lines(code), _FILE)
