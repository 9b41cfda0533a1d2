"""Client of a Jupyter kernel: its process and its messages (https://jupyter-client.readthedocs.io/en/stable/messaging.html)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpec

from coding_gym_server.worker.backends.jupyter.dialects import SETTLED, Dialect, dialect_of
from coding_gym_server.worker.backends.jupyter.process import choose_connection, exit_code_of, start_process

__all__ = ["Kernel", "KernelDiedError", "Message"]

_RECONNECT_MILLISECONDS = 5
_RETRY_MS = 50
_INTERRUPT_INTERVAL_MS = 150
_FINAL_MESSAGES_SECONDS = 0.2
_SIGNALS = 4096

Message = dict[str, Any]


class KernelDiedError(RuntimeError):
    """The kernel process has ended.

    Attributes:
        exit_code: The exit code as a shell reports it.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the kernel died with exit code {exit_code}")
        self.exit_code = exit_code


class Kernel:
    """A running kernel. If it dies while no request is pending, the calling process exits as well.

    Args:
        spec: The specification of the kernel.

    Raises:
        KernelStartError: If its program cannot be executed.
    """

    def __init__(self, spec: KernelSpec) -> None:
        self._by_message = spec.interrupt_mode == "message"
        self._is_busy = False
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._connection = choose_connection(spec)
        # ZeroMQ may keep waiting after a signal: the wakeup descriptor has to be among its poll targets.
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._process = start_process(spec, self._connection.connection_file)
        # If the kernel has died before this line, the first request detects it.
        signal.signal(signal.SIGCHLD, self._on_child)
        context = zmq.Context()
        context.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MILLISECONDS)
        context.setsockopt(zmq.LINGER, 0)
        self._connection.context = context
        self._session = self._connection.session
        self._shell = self._connection.connect_shell()
        self._iopub = self._connection.connect_iopub()
        self._control = self._connection.connect_control()
        self._poller = zmq.Poller()
        for source in (self._iopub, self._shell, self._wake):
            self._poller.register(source, zmq.POLLIN)
        self._is_ready = False
        self._replies: dict[str, Message] = {}
        self._idle: set[str] = set()
        self._last_kind = ""
        self.interrupted = False
        self._interrupt_again_at = 0.0
        self.language = ""
        self.dialect = Dialect()

    def wait_until_ready(self) -> None:
        """Wait until the kernel replies to requests, and its published messages arrive.

        Raises:
            KernelDiedError: If the kernel died.
            KeyboardInterrupt: If the wait was interrupted; the kernel may still become ready.
        """
        if self._is_ready:
            return
        answered = published = False
        with _PendingRequest(self):
            while not (answered and published):
                # Published messages are lost until the subscription is established, which ZeroMQ does not report.
                self._session.send(self._shell, "kernel_info_request")
                deadline = time.monotonic() + _RETRY_MS / 1000
                while not answered or (not published and time.monotonic() < deadline):
                    for channel, message in self._received(_RETRY_MS):
                        published |= channel is self._iopub
                        if message["msg_type"] == "kernel_info_reply":
                            answered = True
                            self._read_kernel_info(message["content"])
                    if self.interrupted:
                        raise KeyboardInterrupt
            self._is_ready = True
        if self.dialect.prelude:
            for _ in self.ask(self.dialect.prelude):
                pass

    def execute(self, code: str) -> Iterator[Message]:
        """Execute a cell; yields the messages published in the meantime, and finally the reply.

        Until the reply, SIGINT interrupts the kernel instead of this process.

        Raises:
            KernelDiedError: If the kernel died.
        """
        with _PendingRequest(self):
            request = self._request(code, silent=False)
            yield from self._published(request)
            if self.dialect.settle:
                yield from self._published(self._request(self.dialect.settle, silent=True), earlier=request, until=SETTLED)
        yield self._replies[request]

    def ask(self, code: str, *, until: str | None = None) -> Iterator[Message]:
        """Execute internal code that is not a cell; yields the messages published in the meantime.

        Args:
            code: The code to execute.
            until: Type of the message that the code publishes last, or None.

        Raises:
            KernelDiedError: If the kernel died.
        """
        with _PendingRequest(self):
            yield from self._published(self._request(code, silent=True), until=until)

    def _request(self, code: str, *, silent: bool) -> str:
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        sent = self._session.send(self._shell, "execute_request", content)
        request: str = sent["header"]["msg_id"]
        return request

    def _published(self, request: str, *, earlier: str = "", until: str | None = None) -> Iterator[Message]:
        """Yield published messages until a request is complete.

        Args:
            request: The ID of the request.
            earlier: The ID of a previous request whose messages may still arrive.
            until: Type of the message that is published last if the request succeeds. If None, the request is complete when
                the kernel is idle.
        """
        while not self._is_done(request, until):
            is_interrupting = self.interrupted and self._by_message
            for channel, message in self._received(_INTERRUPT_INTERVAL_MS if is_interrupting else None):
                parent, kind, content = message["parent_header"].get("msg_id"), message["msg_type"], message["content"]
                if channel is self._shell:
                    self._replies[parent] = message
                elif kind == "status":
                    if content.get("execution_state") == "idle":
                        self._idle.add(parent)
                elif parent in (request, earlier) or kind == "stream":
                    # Background work of a previous cell may still print.
                    self._last_kind = kind
                    yield message

    def _is_done(self, request: str, until: str | None) -> bool:
        reply = self._replies.get(request)
        if reply is None:
            return False
        if until is None or reply["content"].get("status") != "ok":
            return request in self._idle
        return self._last_kind == until

    def _start_request(self) -> None:
        self.interrupted = False
        self._is_busy = True
        self._replies.clear()
        self._idle.clear()
        with contextlib.suppress(BlockingIOError):
            # Earlier signals are discarded, except for the death of the kernel, which is checked again.
            os.read(self._wake, _SIGNALS)
        os.write(self._waker, bytes([signal.SIGCHLD]))

    def _read_kernel_info(self, info: dict[str, Any]) -> None:
        self.language = str(info.get("language_info", {}).get("name", "")).lower()
        self.dialect = dialect_of(str(info.get("implementation", "")), self.language)

    def _received(self, timeout: int | None) -> Iterator[tuple[zmq.Socket[bytes], Message]]:
        """Wait, and yield one message of each channel that has one.

        Args:
            timeout: Timeout in milliseconds; None to wait indefinitely.
        """
        ready = dict(self._poller.poll(timeout))
        if self.interrupted and self._by_message and time.monotonic() > self._interrupt_again_at:
            # The kernel may miss an interrupt that arrives at the wrong moment, so it is repeated.
            self._interrupt()
        if self._wake in ready:
            self._handle_signals(os.read(self._wake, _SIGNALS))
        for channel in (self._iopub, self._shell):
            if channel in ready:
                message = self._receive(channel)
                if message is not None:
                    yield channel, message

    def _receive(self, channel: zmq.Socket[bytes]) -> Message | None:
        try:
            message: Message | None = self._session.recv(channel)[1]
        except ValueError:
            # A message with an invalid signature or without one.
            return None
        return message

    def _handle_signals(self, signals: bytes) -> None:
        if signal.SIGINT in signals:
            self.interrupted = True
            if self._is_ready:
                self._interrupt()
        if signal.SIGCHLD in signals and self._process.poll() is not None:
            raise KernelDiedError(exit_code_of(self._process.returncode))

    def final_messages(self) -> Iterator[Message]:
        """Yield the messages that a dead kernel published and that have not been received yet."""
        deadline = time.monotonic() + _FINAL_MESSAGES_SECONDS
        while time.monotonic() < deadline and self._iopub.poll(_RETRY_MS):
            message = self._receive(self._iopub)
            if message is not None:
                yield message

    def _interrupt(self) -> None:
        self._interrupt_again_at = time.monotonic() + _INTERRUPT_INTERVAL_MS / 1000
        if self._by_message:
            self._session.send(self._control, "interrupt_request", {})
        else:
            os.killpg(self._process.pid, signal.SIGINT)

    def _on_child(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_busy and self._process.poll() is not None:
            os._exit(exit_code_of(self._process.returncode))


class _PendingRequest:
    """Context manager of a request, during which signals are handled only between messages, never within one.

    Args:
        kernel: The kernel that processes the request.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __enter__(self) -> None:
        self._kernel._start_request()
        self._before: Callable[[int, FrameType | None], Any] | int | None = signal.signal(signal.SIGINT, lambda *_: None)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._kernel._is_busy = False
