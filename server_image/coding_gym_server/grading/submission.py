"""The process that holds a submission: runs its source, and does with its objects what the tests ask for.

It is forked for one submission and ends with it. It never has the tests, nor the channel over which verdicts go.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import linecache
import os
import random
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any

import msgspec

from coding_gym_server.grading.exchange import (
    Answer,
    Call,
    Connection,
    GetGlobal,
    Load,
    PeerGoneError,
    Reply,
    Request,
    RunProgram,
)
from coding_gym_server.grading.peer import Peer
from coding_gym_server.grading.rules import OpenRules
from coding_gym_server.grading.values import Encoder, Tag
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers import workspace
from coding_gym_server.workers.streams import adopt_descriptors, flush_streams, open_stream

__all__ = ["MODULE", "SubmissionProcess", "rehearse"]

MODULE = "solution"
"""The name of the module that a submission runs as, unless it is a program."""

_FILE = "<submission>"
_HIGH_DESCRIPTOR = 200
_REHEARSALS = 20
"""CPython adapts code to its operands when it has run some times."""


class SubmissionProcess:
    """Holds one submission. Made before it is forked, together with what all submissions have in common.

    Args:
        directory: The workspace.
        confinement: The limits.
        prepared: What the root has prepared of them.
    """

    def __init__(self, directory: str, *, confinement: Confinement, prepared: int | None) -> None:
        self._work = f"{directory}/{workspace.WORK}"
        self._temporary = f"{directory}/{workspace.TEMPORARY}"
        self._confinement = confinement
        self._prepared = prepared
        self._descriptors = (0, 1, 2)
        self._module = types.ModuleType(MODULE)
        self._peer = Peer(_SubmissionRules(), self._answer)

    def prepare(self) -> None:
        """Set up, in the process that it is forked from, what does not change from one submission to the next."""
        os.environ.update(HOME=self._work, PWD=self._work, TMPDIR=self._temporary)
        sys.argv = [""]
        sys.path.insert(0, "")

    def adopt(self, connection: int, stdout: int, stderr: int) -> None:
        """Take the descriptors that the process has of its own: the connection with the tests, and where its output goes."""
        self._descriptors = connection, stdout, stderr

    def run(self) -> None:
        """Serve the tests until they are done, then wait to be killed: the root ends all that there is of a submission."""
        try:
            connection = self._set_up()
            with contextlib.suppress(PeerGoneError):
                connection.serve()
            while True:
                signal.pause()
        finally:
            flush_streams()
            os._exit(1)

    def _set_up(self) -> Connection:
        os.setsid()
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        descriptor, *outputs = self._descriptors
        adopt_descriptors(*outputs)
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
        os.close(descriptor)
        self._confinement.apply_to_worker(self._prepared)
        os.chdir(self._work)
        random.seed(0)
        connection = Connection(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, moved), self._answer_and_flush)
        self._peer.attach(connection)
        return connection

    def _answer_and_flush(self, request: Request) -> Reply:
        reply = self._peer.answer(request)
        # It may be the last one.
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
        sys.modules[MODULE] = self._module
        exec(compile(code, _FILE, "exec", dont_inherit=True), self._module.__dict__)
        if entry_point is None:
            return Answer(None)
        if not hasattr(self._module, entry_point):
            message = f"the submission does not define {entry_point!r}"
            raise NameError(message)
        return self._global(entry_point)

    def _global(self, name: str) -> Reply:
        value = vars(self._module)[name] if name else self._module
        if name and isinstance(value, types.ModuleType):
            return Answer([Tag.NAMED, value.__name__, ""])
        return Answer(Encoder(self._peer.export).encode(value))


def rehearse() -> None:
    """Do, in the process that submissions are forked from, what each of them will do.

    What the interpreter then remembers of it, in caches and in adapted code, they have from the start; one that remembers it
    itself has to copy a page for it.
    """
    arguments = msgspec.Raw(msgspec.msgpack.encode([[1, "a", [Tag.LIST, [1, 2]]], {}]))
    for _ in range(_REHEARSALS):
        process = SubmissionProcess("/", confinement=Confinement(), prepared=None)
        process._peer.attach(Connection(socket.socket(), process._answer_and_flush))
        process._answer_and_flush(Load("def solve(*values): return values", "solve"))
        process._answer_and_flush(Call([Tag.BACK, 0], arguments))
    linecache.cache.pop(_FILE, None)
    del sys.modules[MODULE]


class _SubmissionRules(OpenRules):
    """Those of a submission, whose tracebacks begin with its own lines."""

    def traceback(self, error: BaseException) -> list[str]:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
            trace = trace.tb_next
        try:
            return traceback.format_exception(error if trace is None else error.with_traceback(trace))
        except BaseException:  # noqa: BLE001 - what an exception of the submission's own says of itself
            return []


def _run_program(code: str, stdin: str) -> None:
    """Run a program, and end the process with its exit code."""
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
    """End as an interpreter does: threads that are no daemons first, then what was registered for the end."""
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
    """Let tracebacks and ``inspect`` find the source."""
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
