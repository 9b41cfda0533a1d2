"""The worker: the process in which a session's code runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coding_gym_server.backends import backend_class
from coding_gym_server.backends.base import ExecutorBackend
from coding_gym_server.backends.output import Output
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers import gui, workspace
from coding_gym_server.workers.channel import Channel
from coding_gym_server.workers.messages import Configure, Execute, Finished, Result, Taken, ToProcess
from coding_gym_server.workers.streams import adopt_descriptors, flush_streams, open_stream

__all__ = ["Worker", "rehearse"]

_HIGH_DESCRIPTOR = 200
"""Our own descriptors are moved up here, out of the way of the user's."""

_REHEARSALS = 10
"""CPython adapts code to its operands when it has run some times."""

_Handler = Any


class Worker:
    """Runs one cell after the other until the server closes the channel.

    Args:
        channel: The server's requests.
        stdout: A descriptor that becomes descriptor 1.
        stderr: A descriptor that becomes descriptor 2.
        directory: The workspace of the session.
        backend: What executes the cells.
        confinement: The limits of the session.
        prepared: What the root has prepared of them.
        authorized_imports: Modules that a backend with a whitelist admits beyond its own.
    """

    def __init__(
        self,
        channel: Channel[ToProcess],
        stdout: int,
        stderr: int,
        directory: str,
        *,
        backend: str,
        confinement: Confinement,
        prepared: int | None,
        authorized_imports: tuple[str, ...],
    ) -> None:
        self._channel = channel
        self._outputs = (stdout, stderr)
        self._directory = Path(directory)
        self._backend_name = backend
        self._confinement = confinement
        self._prepared = prepared
        self._authorized_imports = authorized_imports
        self._output = Output(self._send_result)
        # Threads of the cell display, too.
        self._sending = threading.Lock()
        # What SIGINT does while user code runs; in between it is ignored, so that an interrupt that comes late hits nothing.
        self._on_interrupt: _Handler = signal.default_int_handler

    def run(self) -> None:
        """Serve until the channel closes, then end the process."""
        try:
            self._serve()
        finally:
            # Whatever user code has done to this process: what becomes of it is told by its exit code, not by our traceback.
            os._exit(1)

    def _serve(self) -> None:
        os.setsid()
        # CPython 3.11 keeps the id that it had before the fork, and matplotlib takes this thread for another one.
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        self._adopt_descriptors()
        self._confinement.apply_to_worker(self._prepared)
        self._pid = os.getpid()
        backend = backend_class(self._backend_name)(self._output, authorized_imports=self._authorized_imports)
        backend.confinement = self._confinement
        while True:
            gui.pump_until(self._channel.has_request)
            match self._channel.receive():
                case Configure() as settings:
                    self._enter_workspace(settings.directory)
                    if settings.display is not None:
                        gui.offer_screen(settings.display, settings.display_cookie, self._directory)
                    _seed(None if settings.seed is None else int(settings.seed, 16))
                    backend.configure(show_value=settings.show_value)
                case Execute() as cell:
                    self._execute(backend, cell)

    def _execute(self, backend: ExecutorBackend, cell: Execute) -> None:
        self._repair_streams()
        self._output.begin(rich=cell.rich)
        exit_code = 130
        try:
            signal.signal(signal.SIGINT, self._on_interrupt)
            if cell.environment:
                with backend.environment(cell.environment):
                    exit_code = backend.execute(cell.code)
            else:
                exit_code = backend.execute(cell.code)
            flush_streams()
            self._on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException:  # noqa: BLE001
            # An interrupt came between the end of the cell and the line that turns it off, or a tracer of the user's raised.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.getpid() != self._pid:
            # A child that the cell forked has come to the end of it; the rest is not its business.
            os._exit(exit_code)
        with self._sending:
            self._channel.send(Finished(exit_code, self._output.raised))

    def _send_result(self, result: Result) -> None:
        if os.getpid() != self._pid:
            return
        flush_streams()
        with _uninterrupted(), self._sending:
            self._channel.send(result)
            if not result.is_value and threading.current_thread() is threading.main_thread():
                # What the cell prints next must not be read before the display is in its place. A value comes last.
                while not isinstance(self._channel.receive(), Taken):
                    pass

    def _adopt_descriptors(self) -> None:
        adopt_descriptors(*self._outputs)
        self._channel.move_up(_HIGH_DESCRIPTOR)
        self._saved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR) for number in range(3)]
        self._repair_streams()

    def _repair_streams(self) -> None:
        """Give the next cell a working stdin, stdout and stderr, whatever the last one closed."""
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if not _is_open(number):
                os.dup2(self._saved[number], number)
            stream = getattr(sys, name, None)
            if not _is_usable(stream):
                stream = open_stream(number)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)

    def _enter_workspace(self, directory: str | None) -> None:
        own = str(self._directory / workspace.WORK)
        working_directory = directory or own
        try:
            os.chdir(working_directory)
        except OSError:
            # It has been removed, or closed to us, since it was chosen.
            os.chdir(own)
        os.environ["HOME"] = working_directory if directory else str(self._directory / workspace.HOME)
        os.environ["TMPDIR"] = str(self._directory / workspace.TEMPORARY)
        os.environ["PWD"] = working_directory
        tempfile.tempdir = None
        sys.argv = [""]
        sys.path.insert(0, "")


def rehearse() -> None:
    """Do, in the zygote, what every worker will do: what the interpreter then remembers of it, workers have from the start.

    A worker that fills a cache itself copies a page for it.
    """
    for _ in range(_REHEARSALS):
        _seed(None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have an interrupt wait: half a message would be the end of the channel."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_usable(stream: Any) -> bool:
    """Say whether a stream can be written to, for all one can tell without writing."""
    try:
        return stream is not None and not stream.closed
    except AttributeError:
        # Not all that user code writes to has the attribute.
        return hasattr(stream, "write")
    except BaseException:  # noqa: BLE001 - such as the ValueError of a detached stream
        return False


def _seed(seed: int | None) -> None:
    if seed is not None:
        random.seed(seed)
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    if numpy_random is not None:
        # The fork has seeded ``random`` anew. numpy would take a millisecond to gather entropy of its own.
        numpy_random.seed(random.getrandbits(32) if seed is None else seed % 2**32)
