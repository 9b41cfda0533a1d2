"""Messages between a submission and its tests, and the connection that carries them.

Either side may send requests; while it waits for a reply, it serves the peer's requests, so that calls and callbacks nest as
they do in one process.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.ipc.plain_messages import PlainReport, RunPlain
from coding_gym_server.ipc.question_messages import AskQuestions, QuestionReport
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.remote_objects.program_messages import Compiled, NotStarted, RunCommand, RunProgram, Started
from coding_gym_server.remote_objects.values import Tag, Tree

__all__ = [
    "Answer",
    "Call",
    "ClassFacts",
    "Facts",
    "Failure",
    "Get",
    "GetGlobal",
    "Load",
    "Message",
    "Operate",
    "PeerConnection",
    "PeerGoneError",
    "Request",
    "Streams",
]

MAX_FRAME_BYTES = 64 << 20

_READ_BYTES = 16 << 10

_ERRORS = (OSError, EOFError, *DECODING_ERRORS, MemoryError)


class PeerGoneError(BaseException):
    """The peer is gone, or violates the protocol.

    A ``BaseException``, so that tests that expect an ``Exception`` do not catch it.
    """


class _Struct(msgspec.Struct, array_like=True, frozen=True):
    pass


class Load(_Struct, tag=0, frozen=True):
    """Execute the source of a module; the reply is that of ``GetGlobal`` for the entry point, if there is one.

    Attributes:
        code: The source code.
        entry_point: A name that the module must define.
        imports: Import statements to execute after it, as far as what they import is installed.
    """

    code: str
    entry_point: str | None
    imports: tuple[str, ...] = ()


class GetGlobal(_Struct, tag=2, frozen=True):
    """Return the value of a global name of the module."""

    name: str


class Streams(_Struct, frozen=True):
    """Standard streams and replacements for builtin functions during a call.

    Attributes:
        stdin: Standard input; unchanged if None.
        captured: Whether the reply includes the output.
        builtins: Names of builtin functions to the trees of their replacements.
    """

    stdin: str | None = None
    captured: bool = False
    builtins: dict[str, Tree] = {}


class Call(_Struct, tag=3, frozen=True):
    """Call an object.

    Attributes:
        target: The object.
        arguments: A list of the positional arguments and a dict of the keyword arguments.
        streams: Standard streams of the call; unchanged if None.
    """

    target: Tree
    arguments: msgspec.Raw
    streams: Streams | None = None


class Operate(_Struct, tag=4, frozen=True):
    """Call a special method, which is looked up on the class.

    ``__getstate__`` returns the data of an object whose class extends a builtin container, or the arguments and attributes of
    an exception, and ``__await__`` runs an awaitable to completion.

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


class Facts(_Struct, tag=8, frozen=True):
    """Describe a class; answered with ``ClassFacts``."""

    target: Tree


class Answer(_Struct, tag=11, frozen=True):
    """Successful reply.

    Attributes:
        value: The result.
        changes: Numbers and new contents of the mutable arguments, if any of them has changed.
        stdout: Captured stdout, if requested.
        stderr: Captured stderr, if requested.
    """

    value: Tree
    changes: list[tuple[int, Tree]] = []
    stdout: str = ""
    stderr: str = ""


class Failure(_Struct, tag=12, frozen=True):
    """Reply with the exception that was raised.

    Attributes:
        exception: The exception.
        traceback: Its traceback, as text.
        changes: As in ``Answer``.
        stdout: As in ``Answer``.
        stderr: As in ``Answer``.
    """

    exception: Tree
    traceback: str = ""
    changes: list[tuple[int, Tree]] = []
    stdout: str = ""
    stderr: str = ""


class ClassFacts(_Struct, tag=13, frozen=True):
    """Description of a class, from which the peer creates a proxy class.

    Attributes:
        name: Its name.
        qualname: Its qualified name.
        module: Its module.
        bases: Its bases.
        specials: Special methods that it has beyond those of ``object``.
        own: Other names that its Python classes define, if it extends an immutable builtin type.
        is_awaitable: Whether its instances are coroutines.
    """

    name: str
    qualname: str
    module: str
    bases: list[Tree]
    specials: list[str]
    own: list[str]
    is_awaitable: bool


Request = Load | RunProgram | RunCommand | RunPlain | AskQuestions | GetGlobal | Call | Operate | Get | Facts
Reply = Answer | Failure | ClassFacts
Message = Request | Reply

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class PeerConnection:
    """One end of the connection.

    One thread at a time communicates; the others wait until it has received its reply.

    Args:
        connection: A connected stream socket; the ``PeerConnection`` takes ownership.
        answer: Handler of the peer's requests.
    """

    def __init__(self, connection: socket.socket, answer: Callable[[Any], Reply]) -> None:
        self._socket = connection
        self._answer = answer
        self._turn = threading.RLock()
        self._received = bytearray()
        self.is_broken = False

    def ask(self, request: Request) -> Reply:
        """Send a request and wait for the reply.

        Raises:
            PeerGoneError: If the peer is gone.
            ValueError: If the request is too large or nested too deeply.
        """
        body = _encode(request)
        with self._turn:
            self._send(body)
            while True:
                message = self._receive()
                if isinstance(message, Reply):
                    return message
                self._serve(message)

    def tell(self, message: Started | NotStarted | Compiled | PlainReport | QuestionReport) -> None:
        """Send a message that is not answered.

        Raises:
            PeerGoneError: If the peer is gone.
            ValueError: If it is too large.
        """
        self._send(_encode(message))

    def serve(self) -> None:
        """Serve requests until the peer is gone.

        Raises:
            PeerGoneError: When the peer is gone.
        """
        with self._turn:
            while True:
                message = self._receive()
                if isinstance(message, Reply):
                    reason = "an unexpected answer"
                    raise self._break(reason)
                self._serve(message)

    @property
    def connection(self) -> socket.socket:
        """The socket, for a caller that speaks another protocol from now on."""
        return self._socket

    def close(self) -> None:
        """Close this end."""
        self.is_broken = True
        self._socket.close()

    def _serve(self, request: Request) -> None:
        # Other threads may communicate while this one runs the handler.
        self._turn.release()
        try:
            reply = self._answer(request)
        finally:
            self._turn.acquire()
        try:
            body = _encode(reply)
        except ValueError as error:
            body = _encode(Failure([Tag.EXCEPTION, "ValueError", [Tag.TUPLE, [str(error)]], [Tag.DICT, [], []]]))
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
                reason = f"a message of {size} bytes"
                raise self._break(reason)
            end = HEADER.size + size
            self._fill(end)
            message: Message = _decoder.decode(bytes(memoryview(self._received)[HEADER.size : end]))
            del self._received[:end]
        except _ERRORS as error:
            reason = f"{type(error).__name__}: {error}"
            raise self._break(reason) from error
        return message

    def _fill(self, size: int) -> None:
        """Receive until the buffer holds ``size`` bytes; reads ahead, since most messages arrive in one piece."""
        while len(self._received) < size:
            data = self._socket.recv(max(_READ_BYTES, size - len(self._received)))
            if not data:
                raise EOFError
            self._received += data

    def _break(self, reason: str) -> PeerGoneError:
        # The peer may wait for a reply.
        self.close()
        return PeerGoneError(reason)


def _encode(message: Message | Started | NotStarted | Compiled | PlainReport | QuestionReport) -> bytes:
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
