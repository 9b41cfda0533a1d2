"""The process that runs hidden tests. It holds no submission, and lives on from one to the next.

The server asks it over one channel; the connection with a submission is another one, which comes with the request.
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
import time
from typing import ClassVar

import msgspec

from coding_gym_server.grading.careful_rules import CarefulRules
from coding_gym_server.grading.cases import run_cases
from coding_gym_server.grading.exchange import Answer, Connection, Load, PeerGoneError
from coding_gym_server.grading.messages import Asserts, CaseResult, UnitTests
from coding_gym_server.grading.namespace import Namespace
from coding_gym_server.grading.peer import Peer
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers import workspace
from coding_gym_server.workers.channel import Channel

__all__ = ["Examine", "Examined", "Examiner", "examined_messages", "examiner_requests"]

_RECURSION_LIMIT = 5000
"""What comes from a submission may be nested more deeply than the submission itself could recurse."""


_MAX_MESSAGE_CHARS = 4000


class Examine(msgspec.Struct, tag=True, kw_only=True):
    """To an examiner, with the descriptor of the connection with a submission: test it.

    Attributes:
        directory: The submission's workspace.
        code: The source of the submission.
        entry_point: What it must define.
        tests: The tests.
    """

    DESCRIPTORS: ClassVar[int] = 1

    directory: str
    code: str
    entry_point: str | None
    tests: Asserts | UnitTests


class Examined(msgspec.Struct, tag=True, kw_only=True):
    """The answer to ``Examine``.

    Attributes:
        is_loaded: Whether the submission could be run, and defines what it must.
        is_lost: Whether its process has ended before its tests have.
        message: Why it could not be loaded.
        load_seconds: How long it took to load it.
        cases: What became of each test.
    """

    is_loaded: bool
    is_lost: bool
    message: str = ""
    load_seconds: float = 0.0
    cases: list[CaseResult] = []


examiner_requests = msgspec.msgpack.Decoder(Examine)
examined_messages = msgspec.msgpack.Decoder(Examined)


class Examiner:
    """Tests one submission after the other, until the server closes the channel.

    Args:
        channel: The server's requests.
        directory: Where the workspaces of its submissions are.
        confinement: What sessions are confined to.
    """

    def __init__(self, channel: Channel[Examine], directory: str, confinement: Confinement) -> None:
        self._channel = channel
        self._directory = directory
        self._confinement = confinement

    def run(self) -> None:
        """Serve, then end the process."""
        with contextlib.suppress(EOFError, ConnectionError):
            self._set_up()
            while True:
                for request, descriptors in self._channel.requests():
                    self._channel.send(self._examine(request, socket.socket(fileno=descriptors[0])))
        os._exit(0)

    def _set_up(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._confinement.apply_to_examiner(self._directory)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        sys.path[:] = [path for path in sys.path if path]
        sys.setrecursionlimit(_RECURSION_LIMIT)
        gc.freeze()

    def _examine(self, request: Examine, connection: socket.socket) -> Examined:
        began = time.perf_counter()
        source = request.tests.source if isinstance(request.tests, UnitTests) else "".join(request.tests.cases)
        rules = CarefulRules(expects_stop="StopIteration" in source)
        peer = Peer(rules)
        exchange = Connection(connection, peer.answer)
        peer.attach(exchange)
        work = f"{request.directory}/{workspace.WORK}"
        try:
            os.chdir(work)
            os.environ.update(HOME=work, PWD=work, TMPDIR=f"{request.directory}/{workspace.TEMPORARY}")
            random.seed(0)
            answer = exchange.ask(Load(request.code, request.entry_point))
            load_seconds = time.perf_counter() - began
            if not isinstance(answer, Answer):
                message = getattr(answer, "traceback", "") or getattr(answer, "text", "")
                return Examined(
                    is_loaded=False, is_lost=False, message=message[-_MAX_MESSAGE_CHARS:], load_seconds=load_seconds
                )
            try:
                namespace = Namespace(peer, exchange, rules, request.entry_point, answer)
            except Exception as error:  # noqa: BLE001 - it has said that it defines what it does not
                message = f"its {request.entry_point} is out of reach: {type(error).__name__}"
                return Examined(is_loaded=False, is_lost=False, message=message, load_seconds=load_seconds)
            cases = run_cases(request.tests, namespace, exchange, rules)
            return Examined(is_loaded=True, is_lost=exchange.is_broken, load_seconds=load_seconds, cases=cases)
        except PeerGoneError as error:
            return Examined(is_loaded=False, is_lost=True, message=str(error))
        finally:
            exchange.close()
            linecache.clearcache()
