"""``Publisher``: answers ``coding-gym watch`` from daemon threads of the trainer."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from coding_gym.plugins import printable
from coding_gym.telemetry import observation
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_studio.watching.directory import is_own_process, listen
from coding_gym_studio.watching.messages import (
    VERSION,
    ChangesRequest,
    Farewell,
    Hello,
    History,
    HistoryRequest,
    Reply,
    Request,
    ScreenReply,
    ScreenRequest,
    receive,
    send,
)
from coding_gym_studio.watching.table import SessionTable

__all__ = ["Publisher"]

_log = logging.getLogger("coding_gym")

_SAMPLE_SECONDS = 1.0
_SEND_SECONDS = 5.0
"""Seconds after which a reader that takes no data is disconnected."""

_MOST_READERS = 16
_FAREWELL_SECONDS = 0.3
_LONGEST_COMMAND = 300

_UNUSABLE = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)
"""Errors of a listener that the trainer has closed, and whose number may be that of another file by now."""

_decoder = msgspec.msgpack.Decoder(Request)


class Publisher:
    """Listens on a Unix socket of this user, and answers what its readers ask about the sessions.

    Args:
        table: The sessions.
        name: Name of the trainer.
        root: Id of the trainer's first process.
    """

    def __init__(self, table: SessionTable, *, name: str, root: int) -> None:
        self.name = name
        self.root = root
        self.path: Path | None = None
        self._table = table
        self._listener: socket.socket | None = None
        self._readers: set[_Reader] = set()
        self._is_closed = False
        self._has_refused = False
        self._started = time.time()

    @property
    def is_closed(self) -> bool:
        """Whether it listens no longer, because it was closed, or has failed."""
        return self._is_closed

    def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: If there is no private directory for the socket, or it cannot be created.
        """
        path, listener = listen(backlog=_MOST_READERS)
        listener.settimeout(_SAMPLE_SECONDS)
        self.path, self._listener = path, listener
        threading.Thread(target=self._run, args=(listener,), name="coding_gym_watch", daemon=True).start()

    def close(self) -> None:
        """Tell the readers what has happened last, and remove the socket. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for reader in list(self._readers):
            reader.say_farewell()
        if self._listener is not None:
            self._listener.close()
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def forget(self) -> None:
        """Close what a fork has inherited, without a word to the readers: they belong to the parent."""
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        for reader in list(self._readers):
            reader.connection.close()

    def hello(self) -> Hello:
        """Return the first message for a reader."""
        return Hello(
            version=VERSION,
            name=self.name,
            pid=os.getpid(),
            root=self.root,
            command=printable(shlex.join(sys.argv))[:_LONGEST_COMMAND],
            started=self._started,
        )

    def _run(self, listener: socket.socket) -> None:
        sampled = 0.0
        try:
            while not self._is_closed:
                self._accept(listener)
                if (now := time.monotonic()) - sampled >= _SAMPLE_SECONDS * 0.9:
                    sampled = now
                    self._table.sample()
        except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
            if not self._is_closed:
                _log.warning("Watching this process has failed; training continues.", exc_info=True)
                self.close()
                observation.end(self._table)

    def _accept(self, listener: socket.socket) -> None:
        """Serve the next reader, if one comes; without free file descriptors or threads, a later one."""
        try:
            self._serve(listener.accept()[0])
        except TimeoutError:
            pass
        except (OSError, RuntimeError) as error:
            if self._is_closed:
                return
            if isinstance(error, OSError) and error.errno in _UNUSABLE:
                listener.detach()
                raise
            if not self._has_refused:
                self._has_refused = True
                _log.warning("The page of coding-gym watch cannot connect to this process for now: %s", error)
            time.sleep(_SAMPLE_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        if len(self._readers) >= _MOST_READERS or not is_own_process(connection):
            connection.close()
            return
        reader = _Reader(self, self._table, connection)
        self._readers.add(reader)
        try:
            threading.Thread(target=self._read, args=(reader,), name="coding_gym_watch_reader", daemon=True).start()
        except RuntimeError:
            self._readers.discard(reader)
            connection.close()
            raise

    def _read(self, reader: _Reader) -> None:
        try:
            reader.run()
        except (OSError, *DECODING_ERRORS):
            # It has left, is too slow, or speaks another version.
            pass
        except Exception:  # noqa: BLE001 - nor does it end the publisher
            _log.warning("A reader of coding-gym watch has been disconnected after an error.", exc_info=True)
        finally:
            self._readers.discard(reader)
            reader.connection.close()


class _Reader:
    """A connection of ``coding-gym watch``.

    Args:
        publisher: The publisher.
        table: The sessions.
        connection: The connection.
    """

    def __init__(self, publisher: Publisher, table: SessionTable, connection: socket.socket) -> None:
        self.connection = connection
        self._publisher = publisher
        self._table = table
        self._known: dict[int, int] = {}
        self._sending = threading.Lock()

    def run(self) -> None:
        """Answer requests until the reader leaves."""
        self._send(self._publisher.hello())
        while True:
            self.connection.settimeout(None)
            data = receive(self.connection)
            if data is None:
                return
            self._send(self._answer(_decoder.decode(data)))

    def say_farewell(self) -> None:
        """Send the last changes. A reader that takes no data does not get them."""
        if not self._sending.acquire(timeout=_FAREWELL_SECONDS):
            return
        try:
            with contextlib.suppress(Exception):
                self.connection.settimeout(_FAREWELL_SECONDS)
                send(self.connection, Farewell(self._table.changes(self._known)))
        finally:
            self._sending.release()

    def _send(self, message: Reply) -> None:
        with self._sending:
            self.connection.settimeout(_SEND_SECONDS)
            send(self.connection, message)

    def _answer(self, request: Request) -> Reply:
        if isinstance(request, ChangesRequest):
            return self._table.changes(self._known)
        session = self._table.get(request.session)
        if isinstance(request, HistoryRequest):
            return History(session.history() if session is not None else [])
        assert isinstance(request, ScreenRequest)
        number, picture = session.picture() if session is not None else (0, None)
        if picture is None:
            return ScreenReply(number, 0, 0, None)
        return ScreenReply(number, picture.width, picture.height, picture.rgb)
