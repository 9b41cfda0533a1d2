"""``TrainerConnection``: a connection to a trainer that publishes its environments; ``find_trainers`` finds them."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import msgspec

from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_studio.watching.directory import connect, socket_paths
from coding_gym_studio.watching.messages import (
    VERSION,
    Changes,
    ChangesRequest,
    Farewell,
    Hello,
    History,
    HistoryRequest,
    Reply,
    Request,
    ScreenReply,
    ScreenRequest,
    StepRow,
    receive,
    send,
)

__all__ = ["TrainerConnection", "TrainerEnded", "find_trainers"]

_TIMEOUT = 10.0
"""Seconds after which a trainer that does not answer, as one that is stopped, counts as gone."""

_decoder = msgspec.msgpack.Decoder(Reply)


class TrainerEnded(Exception):
    """The trainer has ended.

    Args:
        last: The last changes, if it has ended in an orderly way; None if it was killed.
    """

    def __init__(self, last: Changes | None) -> None:
        super().__init__("the trainer has ended")
        self.last = last


class TrainerConnection:
    """A connection to a process of a trainer. Thread-safe.

    Args:
        path: Path of its socket.
        connection: The connected socket, which it closes.

    Attributes:
        path: Path of its socket.
        hello: What the process is.

    Raises:
        TrainerEnded: If the process ends, or speaks another version of the protocol.
    """

    def __init__(self, path: Path, connection: socket.socket) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.Lock()
        try:
            hello = self._receive()
        except BaseException:
            connection.close()
            raise
        if not isinstance(hello, Hello) or hello.version != VERSION:
            connection.close()
            raise TrainerEnded(None)
        self.hello = hello

    @classmethod
    def open(cls, path: Path) -> TrainerConnection | None:
        """Connect to a process; None if it has ended."""
        connection = connect(path, timeout=_TIMEOUT)
        if connection is None:
            return None
        with contextlib.suppress(TrainerEnded):
            return cls(path, connection)
        return None

    def changes(self) -> Changes:
        """Return what has changed since the last call; at first, everything.

        Raises:
            TrainerEnded: If the process has ended.
        """
        reply = self._ask(ChangesRequest())
        assert isinstance(reply, Changes)
        return reply

    def history(self, session: int) -> list[StepRow]:
        """Return the last steps of a session, the oldest first; none if the session is gone.

        Raises:
            TrainerEnded: If the process has ended.
        """
        reply = self._ask(HistoryRequest(session))
        assert isinstance(reply, History)
        return reply.steps

    def screen(self, session: int) -> ScreenReply:
        """Return the screen of a session.

        Raises:
            TrainerEnded: If the process has ended.
        """
        reply = self._ask(ScreenRequest(session))
        assert isinstance(reply, ScreenReply)
        return reply

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()

    def _ask(self, request: Request) -> Reply:
        with self._lock:
            with contextlib.suppress(OSError):
                # What a process that has ended said last can still be received.
                send(self._connection, request)
            return self._receive()

    def _receive(self) -> Reply:
        try:
            data = receive(self._connection)
            reply: Reply | None = _decoder.decode(data) if data is not None else None
        except (OSError, *DECODING_ERRORS):
            raise TrainerEnded(None) from None
        if reply is None:
            raise TrainerEnded(None)
        if isinstance(reply, Farewell):
            raise TrainerEnded(reply.changes)
        return reply


def find_trainers() -> list[Hello]:
    """Return the processes of this user that can be watched, the oldest first. Sockets of ended ones are removed."""
    found = []
    for path in socket_paths():
        connection = TrainerConnection.open(path)
        if connection is not None:
            found.append(connection.hello)
            connection.close()
    return sorted(found, key=lambda hello: hello.started)
