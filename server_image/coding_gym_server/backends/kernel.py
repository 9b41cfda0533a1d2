"""A Jupyter kernel: its process, and the messages to and from it (https://jupyter-client.readthedocs.io/en/stable/messaging.html)."""

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

from coding_gym_server.backends.kernel_dialects import SETTLED, Dialect, dialect_of
from coding_gym_server.backends.kernel_process import choose_connection, exit_code_of, open_private_directory, start_process
from coding_gym_server.isolation.confinement import Confinement

__all__ = ["Kernel", "KernelDiedError", "Message"]

_RECONNECT_MILLISECONDS = 5
_ASK_AGAIN_MILLISECONDS = 50
_INSIST_MILLISECONDS = 150
_LAST_WORDS_SECONDS = 0.2
_SIGNALS = 4096

Message = dict[str, Any]


class KernelDiedError(RuntimeError):
    """The kernel's process has ended.

    Attributes:
        exit_code: As a shell reports it.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the kernel died with exit code {exit_code}")
        self.exit_code = exit_code


class Kernel:
    """A running kernel. While it is asked nothing, its end is that of the calling process.

    It is reached over Unix sockets in the session's directory for temporary files, or over ports of the session's own.

    Args:
        spec: Which one.
        confinement: What the session is confined to.

    Raises:
        KernelStartError: It wants ports and the session has none, or its program cannot be run.
    """

    def __init__(self, spec: KernelSpec, confinement: Confinement) -> None:
        self._by_message = spec.interrupt_mode == "message"
        self._is_asked = False
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        descriptor = open_private_directory()
        self._connection = choose_connection(spec, confinement, f"/proc/self/fd/{descriptor}")
        # ZeroMQ may go on waiting after a signal: what it waits for has to include them.
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._process = start_process(spec, self._connection.connection_file, confinement, descriptor)
        # If it has died by now, whoever asks it first is told.
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
        self._insist_at = 0.0
        self.language = ""
        self.dialect = Dialect()

    def wait_until_ready(self) -> None:
        """Wait until it answers, and what it publishes arrives.

        Raises:
            KernelDiedError: It died.
            KeyboardInterrupt: It did not in time; it may yet.
        """
        if self._is_ready:
            return
        answered = published = False
        with _Asking(self):
            while not (answered and published):
                # Published messages are lost until the subscription is there, of which nobody tells.
                self._session.send(self._shell, "kernel_info_request")
                deadline = time.monotonic() + _ASK_AGAIN_MILLISECONDS / 1000
                while not answered or (not published and time.monotonic() < deadline):
                    for channel, message in self._received(_ASK_AGAIN_MILLISECONDS):
                        published |= channel is self._iopub
                        if message["msg_type"] == "kernel_info_reply":
                            answered = True
                            self._meet(message["content"])
                    if self.interrupted:
                        raise KeyboardInterrupt
            self._is_ready = True
        if self.dialect.prelude:
            for _ in self.ask(self.dialect.prelude):
                pass

    def execute(self, code: str) -> Iterator[Message]:
        """Run a cell; yields what is published meanwhile, and the reply as the last.

        SIGINT interrupts the kernel until then, not this process.

        Raises:
            KernelDiedError: It died.
        """
        with _Asking(self):
            request = self._request(code, silent=False)
            yield from self._published(request)
            if self.dialect.settle:
                yield from self._published(self._request(self.dialect.settle, silent=True), earlier=request, until=SETTLED)
        yield self._replies[request]

    def ask(self, code: str, *, until: str | None = None) -> Iterator[Message]:
        """Run code of ours, which is no cell; yields what is published meanwhile.

        Args:
            code: The code.
            until: The type of the message that it publishes in the end, if it does.

        Raises:
            KernelDiedError: It died.
        """
        with _Asking(self):
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
        """Yield what is published until a request is done.

        Args:
            request: The request.
            earlier: Another one, whose messages may still come.
            until: The type of a message that is published last if the request succeeds; without it, the kernel is idle then.
        """
        while not self._is_done(request, until):
            insist = self.interrupted and self._by_message
            for channel, message in self._received(_INSIST_MILLISECONDS if insist else None):
                parent, kind, content = message["parent_header"].get("msg_id"), message["msg_type"], message["content"]
                if channel is self._shell:
                    self._replies[parent] = message
                elif kind == "status":
                    if content.get("execution_state") == "idle":
                        self._idle.add(parent)
                elif parent in (request, earlier) or kind == "stream":
                    # What an earlier cell has left running may still print.
                    self._last_kind = kind
                    yield message

    def _is_done(self, request: str, until: str | None) -> bool:
        reply = self._replies.get(request)
        if reply is None:
            return False
        if until is None or reply["content"].get("status") != "ok":
            return request in self._idle
        return self._last_kind == until

    def _begin_to_ask(self) -> None:
        self.interrupted = False
        self._is_asked = True
        self._replies.clear()
        self._idle.clear()
        with contextlib.suppress(BlockingIOError):
            # Signals that came before are history, but for its death.
            os.read(self._wake, _SIGNALS)
        os.write(self._waker, bytes([signal.SIGCHLD]))

    def _meet(self, info: dict[str, Any]) -> None:
        self.language = str(info.get("language_info", {}).get("name", "")).lower()
        self.dialect = dialect_of(str(info.get("implementation", "")), self.language)

    def _received(self, timeout: int | None) -> Iterator[tuple[zmq.Socket[bytes], Message]]:
        """Wait, and yield a message of each channel that has one.

        Args:
            timeout: Milliseconds.
        """
        ready = dict(self._poller.poll(timeout))
        if self.interrupted and self._by_message and time.monotonic() > self._insist_at:
            # One that comes at an odd moment may come to nothing.
            self._interrupt()
        if self._wake in ready:
            self._heed(os.read(self._wake, _SIGNALS))
        for channel in (self._iopub, self._shell):
            if channel in ready:
                message = self._receive(channel)
                if message is not None:
                    yield channel, message

    def _receive(self, channel: zmq.Socket[bytes]) -> Message | None:
        try:
            message: Message | None = self._session.recv(channel)[1]
        except ValueError:
            # A message that somebody else has signed, or nobody.
            return None
        return message

    def _heed(self, signals: bytes) -> None:
        if signal.SIGINT in signals:
            self.interrupted = True
            if self._is_ready:
                self._interrupt()
        if signal.SIGCHLD in signals and self._process.poll() is not None:
            raise KernelDiedError(exit_code_of(self._process.returncode))

    def last_words(self) -> Iterator[Message]:
        """Yield what a kernel that died had published and nobody has seen yet."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < deadline and self._iopub.poll(_ASK_AGAIN_MILLISECONDS):
            message = self._receive(self._iopub)
            if message is not None:
                yield message

    def _interrupt(self) -> None:
        self._insist_at = time.monotonic() + _INSIST_MILLISECONDS / 1000
        if self._by_message:
            self._session.send(self._control, "interrupt_request", {})
        else:
            os.killpg(self._process.pid, signal.SIGINT)

    def _on_child(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_asked and self._process.poll() is not None:
            os._exit(exit_code_of(self._process.returncode))


class _Asking:
    """While it lasts, signals are heeded where messages are waited for, never in the middle of one.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __enter__(self) -> None:
        self._kernel._begin_to_ask()
        self._before: Callable[[int, FrameType | None], Any] | int | None = signal.signal(signal.SIGINT, lambda *_: None)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._kernel._is_asked = False
