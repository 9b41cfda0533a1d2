"""The server's end of a worker: its channel, and what it prints and shows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from coding_gym_server.workers.capture import OutputCapture
from coding_gym_server.workers.link import Link, LinkClosedError
from coding_gym_server.workers.messages import MAX_RESULT_BYTES, Configure, Execute, Finished, FromProcess, Result, Taken

__all__ = ["DEFAULT_MAX_OUTPUT_CHARS", "Event", "Printed", "WorkerEnd"]

DEFAULT_MAX_OUTPUT_CHARS = 16_384

_REST_SECONDS = 0.01
_MAX_MESSAGE_BYTES = MAX_RESULT_BYTES + (1 << 20)
_RESULT_OVERHEAD = 100


@dataclass(frozen=True)
class Printed:
    """A piece of what a cell printed.

    Attributes:
        stream: ``stdout`` or ``stderr``.
        text: The piece.
    """

    stream: str
    text: str


Event = Printed | Result
"""What a cell shows while it runs."""


class WorkerEnd:
    """What the server holds of a worker.

    Args:
        channel: Its channel.
        stdout: The read end of its descriptor 1.
        stderr: The read end of its descriptor 2.
        on_finished: Called with the result of a cell, or with None if what came is no result.
    """

    def __init__(
        self, channel: socket.socket, stdout: int, stderr: int, *, on_finished: Callable[[Finished | None], None]
    ) -> None:
        self.gone = False
        self.pid = 0
        self._on_finished = on_finished
        self._on_event: Callable[[Event], None] | None = None
        self._room = 0
        self.link: Link[FromProcess] = Link(
            channel, on_message=self._on_message, on_closed=self._on_closed, max_bytes=_MAX_MESSAGE_BYTES
        )
        self._stdout = OutputCapture(stdout, max_chars=DEFAULT_MAX_OUTPUT_CHARS)
        self._stderr = OutputCapture(stderr, max_chars=DEFAULT_MAX_OUTPUT_CHARS)
        self._loop = asyncio.get_running_loop()
        self._rest = self._loop.call_later(_REST_SECONDS, self._start_reading)

    def configure(self, configuration: Configure, max_output_chars: int) -> None:
        self._stdout.max_chars = self._stderr.max_chars = max_output_chars
        with contextlib.suppress(LinkClosedError):
            self.link.send(configuration)

    def execute(self, cell: Execute, on_event: Callable[[Event], None] | None) -> None:
        """Send a cell. What a short one prints fits into the pipes: not to read them at first saves the server a wake-up."""
        self._room = _MAX_MESSAGE_BYTES
        self.attach(on_event)
        self._rest.cancel()
        self._stdout.rest()
        self._stderr.rest()
        self._rest = self._loop.call_later(_REST_SECONDS, self._start_reading)
        self.link.send(cell)

    def attach(self, on_event: Callable[[Event], None] | None) -> None:
        """Hand out what the cell shows from now on, if somebody wants it."""
        self._on_event = on_event
        if on_event is not None:
            self._stdout.stream(lambda text: on_event(Printed("stdout", text)))
            self._stderr.stream(lambda text: on_event(Printed("stderr", text)))

    def end_events(self) -> bool:
        """Hand out what has been printed and not been handed out yet; says whether somebody wanted events."""
        if self._on_event is None:
            return False
        self._on_event = None
        self._stdout.end_stream()
        self._stderr.end_stream()
        return True

    def take_output(self, note: str = "") -> tuple[str, str]:
        """Return stdout and stderr since the last call, the latter with a note at its end."""
        return self._stdout.take(), self._stderr.take(note)

    def close(self) -> None:
        self._rest.cancel()
        self.link.close()
        self._stdout.close()
        self._stderr.close()

    def _start_reading(self) -> None:
        self._stdout.start_reading()
        self._stderr.start_reading()

    def _on_message(self, message: FromProcess) -> None:
        # A worker can lie about what its cell returned, and about nothing else.
        match message:
            case Result():
                self._on_result(message)
            case Finished(exit_code) if 0 <= exit_code <= 255:
                self._on_finished(message)
            case _:
                self._on_finished(None)

    def _on_result(self, result: Result) -> None:
        self._room -= sum(map(len, (*result.texts.values(), *result.documents.values()))) + _RESULT_OVERHEAD
        if self._on_event is not None and self._room > 0:
            # What was printed before it comes first.
            self._stdout.drain()
            self._stderr.drain()
            self._on_event(result)
        with contextlib.suppress(LinkClosedError):
            self.link.send(Taken())

    def _on_closed(self) -> None:
        # It may run on, if user code closed the channel or executed another program: the root tells when it ends.
        self.gone = True
