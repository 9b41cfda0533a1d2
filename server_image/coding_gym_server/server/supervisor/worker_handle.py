"""The server's handle on a worker: its channel and its output."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import (
    MAX_RESULT_BYTES,
    Ack,
    CellResult,
    Configure,
    Execute,
    Finished,
    FromProcess,
    WorkerExited,
)
from coding_gym_server.ipc.snapshot_messages import EnterSlot, Resume
from coding_gym_server.ipc.streams import open_output_pipes
from coding_gym_server.ipc.widget_messages import FoundWidgets
from coding_gym_server.protocol import Widget
from coding_gym_server.server.supervisor.output_capture import OutputCapture
from coding_gym_server.server.supervisor.zygote_handle import ForkError

__all__ = ["DEFAULT_MAX_OUTPUT_CHARS", "Event", "OutputChunk", "WorkerHandle"]

DEFAULT_MAX_OUTPUT_CHARS = 16_384

_READ_DELAY_SECONDS = 0.01
_RESPONSE_SECONDS = 10.0
_MAX_MESSAGE_BYTES = MAX_RESULT_BYTES + (1 << 20)
_RESULT_OVERHEAD = 1024
"""Number of bytes that the objects of a result take, however short its texts are."""


@dataclass(frozen=True)
class OutputChunk:
    """Chunk of output of a cell.

    Attributes:
        stream: ``stdout`` or ``stderr``.
        text: The text.
    """

    stream: str
    text: str


Event = OutputChunk | CellResult
"""Output or result of a running cell."""


class WorkerHandle:
    """The server's handle on a worker.

    Args:
        channel: Socket of the worker's channel.
        stdout: Read end of the pipe at its descriptor 1.
        stderr: Read end of the pipe at its descriptor 2.
        on_finished: Called with the result of a cell, or with None after an invalid message.

    Attributes:
        on_finished: Called with the result of a cell, or with None after an invalid message.
        has_exited: Whether the worker has exited or closed its channel.
        pid: Its process id, 0 before it is known.
        own_pid: Its process id in the pid namespace of the root, 0 before it is known.
        origin: What ``AdoptCopy`` finds a copy by: its ``pid`` and ``original``.
    """

    def __init__(
        self, channel: socket.socket, stdout: int, stderr: int, *, on_finished: Callable[[Finished | None], None]
    ) -> None:
        self.has_exited = False
        self.pid = 0
        self.own_pid = 0
        self.origin = (0, 0)
        self.on_finished = on_finished
        self._on_event: Callable[[Event], None] | None = None
        self._result_budget = 0
        self._channel: AsyncChannel[FromProcess] = AsyncChannel(
            channel,
            on_message=self._on_message,
            on_closed=self._on_closed,
            max_bytes=_MAX_MESSAGE_BYTES,
            unsolicited=(WorkerExited, FoundWidgets),
            is_trusted=False,
        )
        self._widgets: asyncio.Future[list[Widget]] | None = None
        self._stdout = OutputCapture(stdout, max_chars=DEFAULT_MAX_OUTPUT_CHARS)
        self._stderr = OutputCapture(stderr, max_chars=DEFAULT_MAX_OUTPUT_CHARS)
        self._loop = asyncio.get_running_loop()
        self._read_timer = self._loop.call_later(_READ_DELAY_SECONDS, self._start_reading)

    @classmethod
    @contextlib.contextmanager
    def open(cls, *, on_finished: Callable[[Finished | None], None]) -> Iterator[tuple[WorkerHandle, tuple[int, int, int]]]:
        """Open the channel and the pipes of a worker that is to be forked.

        Args:
            on_finished: See the class.

        Yields:
            The handle, which is closed if an exception is raised, and the descriptors to pass to the worker, which are closed.

        Raises:
            ForkError: If file descriptors are exhausted.
        """
        try:
            ours, theirs = socket.socketpair()
            (out_read, out_write), (err_read, err_write) = open_output_pipes()
        except OSError as error:
            message = f"cannot connect to an interpreter: {error.strerror}"
            raise ForkError(message) from error
        handle = cls(ours, out_read, err_read, on_finished=on_finished)
        try:
            yield handle, (theirs.fileno(), out_write, err_write)
        except BaseException:
            handle.close()
            raise
        finally:
            theirs.close()
            close_all((out_write, err_write))

    def configure(self, configuration: Configure, max_output_chars: int) -> None:
        """Send the configuration of an episode, and set the maximum number of code points of stdout, and of stderr."""
        self.limit_output(max_output_chars)
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(configuration)

    async def ask(self, request: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> FromProcess:
        """Send a request to a worker that runs no cell; return its response.

        Raises:
            ChannelClosedError: If the worker has exited.
            TimeoutError: If it does not respond.
        """
        return await self._channel.call(request, descriptors, timeout=_RESPONSE_SECONDS)

    def resume(self, request: Resume, namespaces: tuple[int, ...]) -> asyncio.Future[FromProcess]:
        """Resume a worker that was forked from a frozen copy.

        Args:
            request: What differs from the copied worker.
            namespaces: Those of its slot, which it joins first; none if the copy was in the same slot.

        Returns:
            Its message that it is ready; ``ChannelClosedError`` if it exits before.
        """
        ready = self._channel.expect()
        with contextlib.suppress(ChannelClosedError):
            if namespaces:
                self._channel.send(EnterSlot(), namespaces)
            self._channel.send(request)
        return ready

    def expect_widgets(self) -> asyncio.Future[list[Widget]]:
        """Return a future for the widgets that the worker reports next; they may be forged."""
        self._widgets = self._loop.create_future()
        return self._widgets

    def limit_output(self, max_output_chars: int) -> None:
        """Set the maximum number of code points of stdout, and of stderr."""
        self._stdout.max_chars = self._stderr.max_chars = max_output_chars

    def execute(self, cell: Execute, on_event: Callable[[Event], None] | None) -> None:
        """Send a cell.

        Output is read after a delay: that of a short cell fits into the pipes, which saves the server a wake-up.

        Args:
            cell: The cell.
            on_event: Called with each output and result as it arrives, or None.
        """
        self._result_budget = _MAX_MESSAGE_BYTES
        self.attach(on_event)
        self._read_timer.cancel()
        self._stdout.stop_reading()
        self._stderr.stop_reading()
        self._read_timer = self._loop.call_later(_READ_DELAY_SECONDS, self._start_reading)
        self._channel.send(cell)

    def attach(self, on_event: Callable[[Event], None] | None) -> None:
        """Deliver output and results to ``on_event`` from now on, unless it is None."""
        self._on_event = on_event
        if on_event is not None:
            self._stdout.stream(lambda text: on_event(OutputChunk("stdout", text)))
            self._stderr.stream(lambda text: on_event(OutputChunk("stderr", text)))

    def end_events(self) -> bool:
        """Deliver the remaining output as events; return False if no events were requested."""
        if self._on_event is None:
            return False
        self._on_event = None
        self._stdout.end_stream()
        self._stderr.end_stream()
        return True

    def take_output(self, note: str = "") -> tuple[str, str]:
        """Return stdout and stderr since the last call, with a note appended to stderr."""
        return self._stdout.take(), self._stderr.take(note)

    def close(self) -> None:
        """Close the channel and the pipes. Idempotent."""
        self._read_timer.cancel()
        self._channel.close()
        self._stdout.close()
        self._stderr.close()

    def _start_reading(self) -> None:
        self._stdout.start_reading()
        self._stderr.start_reading()

    def _on_message(self, message: FromProcess) -> None:
        # User code can forge messages of the worker; only the result of its own cell is accepted.
        match message:
            case CellResult():
                self._on_result(message)
            case Finished(exit_code) if 0 <= exit_code <= 255:
                self.on_finished(message)
            case FoundWidgets(widgets):
                # Without a question that still waits, it is late or forged.
                if self._widgets is not None and not self._widgets.done():
                    self._widgets.set_result(widgets)
            case _:
                self.on_finished(None)

    def _on_result(self, result: CellResult) -> None:
        self._result_budget -= sum(map(len, (*result.texts.values(), *result.documents.values()))) + _RESULT_OVERHEAD
        if self._on_event is not None and self._result_budget > 0:
            # Deliver the output that precedes the result first.
            self._stdout.drain()
            self._stderr.drain()
            self._on_event(result)
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(Ack())

    def _on_closed(self) -> None:
        # The process may continue if user code closed the channel or executed another program; the root reports its exit.
        self.has_exited = True
