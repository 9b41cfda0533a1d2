"""The messages between a submission and its tests, and the connection that they travel over.

Either side may ask the other one; while it waits for the answer, it answers what the other side asks in turn, so calls and
callbacks nest as they do in one process.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from coding_gym_server.grading.values import Tag, Tree
from coding_gym_server.workers.channel import HEADER

__all__ = [
    "Answer",
    "Await",
    "Call",
    "ClassFacts",
    "Connection",
    "Delete",
    "Facts",
    "Failure",
    "Get",
    "GetGlobal",
    "Load",
    "Message",
    "Operate",
    "PeerGoneError",
    "Plain",
    "Request",
    "RunProgram",
    "Set",
    "Streams",
]

MAX_FRAME_BYTES = 64 << 20
_READ_BYTES = 16 << 10

_FAULTS = (OSError, EOFError, msgspec.MsgspecError, UnicodeError, RecursionError, MemoryError)


class PeerGoneError(BaseException):
    """The other side is gone, or does not keep to the protocol.

    No ``Exception``: tests that expect one are not to take this for it.
    """


class _Struct(msgspec.Struct, array_like=True, frozen=True):
    pass


class Load(_Struct, tag=0, frozen=True):
    """Run the source of a module; answered as ``GetGlobal`` of the entry point is, if there is one.

    Attributes:
        code: The source.
        entry_point: A name that it must define then.
    """

    code: str
    entry_point: str | None


class RunProgram(_Struct, tag=1, frozen=True):
    """Run the source of a program, and end the process as it ends. Not answered.

    Attributes:
        code: The source.
        stdin: What it reads.
    """

    code: str
    stdin: str


class GetGlobal(_Struct, tag=2, frozen=True):
    """Return what a name of the module stands for."""

    name: str


class Streams(_Struct, frozen=True):
    """Standard streams, and functions that stand in for builtin ones, for the time of a call.

    Attributes:
        stdin: What is to be read; the usual stream if None.
        captured: Whether what is printed comes with the answer.
        builtins: Names to trees.
    """

    stdin: str | None = None
    captured: bool = False
    builtins: dict[str, Tree] = {}


class Call(_Struct, tag=3, frozen=True):
    """Call an object.

    Attributes:
        target: The object.
        arguments: A list of the positional arguments and a dict of the others.
        streams: What it prints to and reads from; as usual if None.
    """

    target: Tree
    arguments: msgspec.Raw
    streams: Streams | None = None


class Operate(_Struct, tag=4, frozen=True):
    """Call a special method, which Python looks up on the class.

    Attributes:
        name: Its name.
        target: The object.
        arguments: As in ``Call``.
    """

    name: str
    target: Tree
    arguments: msgspec.Raw


class Get(_Struct, tag=5, frozen=True):
    """Return an attribute."""

    target: Tree
    name: str


class Set(_Struct, tag=6, frozen=True):
    """Set an attribute."""

    target: Tree
    name: str
    value: Tree


class Delete(_Struct, tag=7, frozen=True):
    """Delete an attribute."""

    target: Tree
    name: str


class Facts(_Struct, tag=8, frozen=True):
    """Describe a class; answered with ``ClassFacts``."""

    target: Tree


class Plain(_Struct, tag=9, frozen=True):
    """Return the data of an object whose class extends a builtin container, as that container."""

    target: Tree


class Await(_Struct, tag=10, frozen=True):
    """Run an awaitable to its end and return its result."""

    target: Tree


class Answer(_Struct, tag=11, frozen=True):
    """What was asked for.

    Attributes:
        value: The result.
        changes: Containers among the arguments by their numbers, and what they have now, if one has changed.
        stdout: What was printed, if it was to be captured.
        stderr: Likewise.
    """

    value: Tree
    changes: list[tuple[int, Tree]] = []
    stdout: str = ""
    stderr: str = ""


class Failure(_Struct, tag=12, frozen=True):
    """The exception that was raised instead.

    Attributes:
        kind: Its class.
        arguments: Its arguments, a list.
        text: What it says.
        exception: The exception itself, unless its class is a builtin one.
        traceback: Where it came from, as text.
        changes: As in ``Answer``.
        stdout: As in ``Answer``.
        stderr: As in ``Answer``.
    """

    kind: Tree
    arguments: Tree
    text: str
    exception: Tree = None
    traceback: str = ""
    changes: list[tuple[int, Tree]] = []
    stdout: str = ""
    stderr: str = ""


class ClassFacts(_Struct, tag=13, frozen=True):
    """What one must know of a class to stand in for it.

    Attributes:
        name: Its name.
        qualname: Its qualified name.
        module: Its module.
        bases: Its bases.
        specials: The special methods that it has beyond those of every object.
        own: The other names that its Python classes define.
        is_awaitable: Whether its instances are coroutines.
    """

    name: str
    qualname: str
    module: str
    bases: list[Tree]
    specials: list[str]
    own: list[str]
    is_awaitable: bool


Request = Load | RunProgram | GetGlobal | Call | Operate | Get | Set | Delete | Facts | Plain | Await
Reply = Answer | Failure | ClassFacts
Message = Request | Reply

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class Connection:
    """One end of the connection.

    One thread at a time speaks; the others wait until it has its answer.

    Args:
        connection: A connected stream socket; it belongs to the connection from now on.
        answer: Answers a request of the other side.
    """

    def __init__(self, connection: socket.socket, answer: Callable[[Any], Reply]) -> None:
        self._socket = connection
        self._answer = answer
        self._turn = threading.RLock()
        self._received = bytearray()
        self.is_broken = False

    def ask(self, request: Request) -> Reply:
        """Send a request, and wait for its answer.

        Raises:
            PeerGoneError: There is none.
            ValueError: What is asked is too large or too deep to be sent.
        """
        body = _encode(request)
        with self._turn:
            self._send(body)
            while True:
                message = self._receive()
                if isinstance(message, Reply):
                    return message
                self._serve(message)

    def serve(self) -> None:
        """Answer requests until the other side is gone.

        Raises:
            PeerGoneError: It is.
        """
        with self._turn:
            while True:
                message = self._receive()
                if isinstance(message, Reply):
                    why = "an answer that nobody waits for"
                    raise self._break(why)
                self._serve(message)

    def close(self) -> None:
        """Close this end."""
        self.is_broken = True
        self._socket.close()

    def _serve(self, request: Request) -> None:
        # Other threads may speak while this one is busy.
        self._turn.release()
        try:
            reply = self._answer(request)
        finally:
            self._turn.acquire()
        try:
            body = _encode(reply)
        except ValueError as error:
            body = _encode(Failure([Tag.TYPE, "ValueError"], [str(error)], str(error)))
        self._send(body)

    def _send(self, body: bytes) -> None:
        if self.is_broken:
            raise PeerGoneError
        try:
            self._socket.sendall(HEADER.pack(len(body)) + body)
        except OSError as error:
            raise self._break(str(error)) from error

    def _receive(self) -> Message:
        if self.is_broken:
            raise PeerGoneError
        try:
            self._fill(HEADER.size)
            (size,) = HEADER.unpack_from(self._received)
            if size > MAX_FRAME_BYTES:
                why = f"a message of {size} bytes"
                raise self._break(why)
            end = HEADER.size + size
            self._fill(end)
            message: Message = _decoder.decode(bytes(memoryview(self._received)[HEADER.size : end]))
            del self._received[:end]
        except _FAULTS as error:
            why = f"{type(error).__name__}: {error}"
            raise self._break(why) from error
        return message

    def _fill(self, size: int) -> None:
        """Receive until there are so many bytes; most often, a message comes as a whole."""
        while len(self._received) < size:
            data = self._socket.recv(max(_READ_BYTES, size - len(self._received)))
            if not data:
                raise EOFError
            self._received += data

    def _break(self, why: str) -> PeerGoneError:
        self.is_broken = True
        return PeerGoneError(why)


def _encode(message: Message) -> bytes:
    try:
        body = _encoder.encode(message)
    except RecursionError:
        reason = "nested too deeply"
    else:
        if len(body) <= MAX_FRAME_BYTES:
            return body
        reason = f"{len(body)} bytes are more than {MAX_FRAME_BYTES}"
    explanation = f"a value cannot cross between a submission and its tests: {reason}"
    raise ValueError(explanation)
