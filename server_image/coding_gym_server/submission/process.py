"""The process that holds a submission: runs its source code, and performs the tests' requests on its objects.

It is forked for one submission and ends with it. It has neither the tests nor the channel that carries verdicts.
"""

from __future__ import annotations

import contextlib
import fcntl
import linecache
import os
import random
import signal
import socket
import sys
import types

import msgspec

from coding_gym_server.ipc.plain_messages import RunPlain
from coding_gym_server.ipc.question_messages import AskQuestions
from coding_gym_server.ipc.streams import adopt_descriptors, flush_streams
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux.inherited_state import renew_inherited_state
from coding_gym_server.linux.stack import MOST_STACK_BYTES, limit_stack
from coding_gym_server.protocol.grading import SUBMISSION_MODULE
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import (
    Answer,
    Call,
    GetGlobal,
    Load,
    PeerConnection,
    PeerGoneError,
    Reply,
    Request,
)
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.remote_objects.program_messages import RunCommand, RunProgram
from coding_gym_server.remote_objects.values import Tag
from coding_gym_server.submission import programs
from coding_gym_server.submission.asking import run_questions
from coding_gym_server.submission.commands import run_commands
from coding_gym_server.submission.plain_run import run_plain
from coding_gym_server.submission.programs import SOURCE_NAME
from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["SubmissionProcess", "warm_up"]

_HIGH_DESCRIPTOR = 200

_WARM_UP_RUNS = 20
"""Number of warm-up runs: CPython specializes code for its operands after several runs."""


class SubmissionProcess:
    """Holds one submission: forked for it, serves requests until it is killed. Created before the fork, with shared state.

    Args:
        layout: Paths of its directories.
        profile: The isolation profile.
        prepared: The part of the profile that the root has prepared.
    """

    def __init__(self, layout: Layout, *, profile: IsolationProfile, prepared: int | None) -> None:
        self._layout = layout
        self._profile = profile
        self._prepared = prepared
        self._descriptors: tuple[int, int, int, int | None] = (0, 1, 2, None)
        self._module = types.ModuleType(SUBMISSION_MODULE)
        self._peer = RemoteObjectEndpoint(_SubmissionRules(), self._answer)
        self._connection: PeerConnection
        self._has_request = False

    def prepare(self) -> None:
        """Set up the state that all of them share, in the process that they are forked from."""
        os.environ.update(self._layout.variables())
        sys.argv = [""]

    def adopt(self, connection: int, stdout: int, stderr: int, stdin: int | None) -> None:
        """Set the descriptors of this process: the connection that it serves, and its streams; None for ``/dev/null``."""
        self._descriptors = connection, stdout, stderr, stdin

    def run(self) -> None:
        """Serve requests until they end, then wait to be killed: the root ends all processes of a submission."""
        try:
            self._serve(self._set_up())
            while True:
                signal.pause()
        finally:
            flush_streams()
            os._exit(1)

    def _set_up(self) -> socket.socket:
        """Set up the forked process; return its connection, out of the way of the programs' own descriptors."""
        os.setsid()
        # As in any Python program; the zygote ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        renew_inherited_state()
        descriptor, stdout, stderr, stdin = self._descriptors
        adopt_descriptors(stdout, stderr, stdin)
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
        os.close(descriptor)
        self._profile.apply_to_worker(self._prepared)
        limit_stack(MOST_STACK_BYTES)
        os.chdir(self._layout.work)
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, moved)

    def _serve(self, connection: socket.socket) -> None:
        random.seed(0)
        peer = self._connection = PeerConnection(connection, self._answer_and_flush)
        self._peer.attach(peer)
        with contextlib.suppress(PeerGoneError):
            peer.serve()
        if not self._has_request:
            # Nothing can be received any more, for example because a program is larger than the memory of this process.
            os._exit(1)

    def _answer_and_flush(self, request: Request) -> Reply:
        reply = self._peer.answer(request)
        # This may be the last request.
        flush_streams()
        return reply

    def _answer(self, request: Request) -> Reply:
        self._has_request = True
        match request:
            case Load():
                return self._load(request.code, request.entry_point, request.imports)
            case GetGlobal(name):
                return self._global(name)
            case RunPlain():
                run_plain(request, self._connection.tell)
            case AskQuestions():
                run_questions(request, self._connection.tell)
            case RunProgram():
                programs.run_program(request, self._connection.tell)
            case RunCommand():
                run_commands(request, self._connection.connection, self._layout.work)
        raise ValueError(type(request).__name__)

    def _load(self, code: str, entry_point: str | None, imports: tuple[str, ...]) -> Reply:
        code = code.removeprefix(programs.BYTE_ORDER_MARK)
        programs.remember_source(code)
        sys.modules[SUBMISSION_MODULE] = self._module
        self._module.__file__ = os.path.abspath(f"{SUBMISSION_MODULE}.py")
        compiled = compile(code, SOURCE_NAME, "exec", dont_inherit=True)
        # Not earlier: what is imported before the submission is executed is none of its files.
        sys.path.insert(0, "")
        exec(compiled, self._module.__dict__)
        for statement in imports:
            with contextlib.suppress(Exception):
                exec(statement, self._module.__dict__)
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
    path = sys.path.copy()
    arguments = msgspec.Raw(msgspec.msgpack.encode([[1, "a", [Tag.LIST, [1, 2]]], {}]))
    for _ in range(_WARM_UP_RUNS):
        process = SubmissionProcess(PRIVATE, profile=IsolationProfile(), prepared=None)
        with socket.socket() as unconnected:
            process._peer.attach(PeerConnection(unconnected, process._answer_and_flush))
            process._answer_and_flush(Load("def solve(*values): return values", "solve"))
            process._answer_and_flush(Call([Tag.BACK, 0], arguments))
    linecache.cache.pop(SOURCE_NAME, None)
    # The root imports libraries.
    sys.path[:] = path
    del sys.modules[SUBMISSION_MODULE]


class _SubmissionRules(AccessPolicy):
    """Access policy of a submission; its tracebacks start with the submission's own lines."""

    def traceback(self, error: BaseException) -> list[str]:
        return programs.format_error(error)
