"""Worker process, which executes the cells of a session."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import fcntl
import functools
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import (
    CLOSE_SIGNAL,
    Ack,
    CellResult,
    Configure,
    Execute,
    Failed,
    Finished,
    ToProcess,
)
from coding_gym_server.ipc.snapshot_messages import (
    CopyWorker,
    EnterSlot,
    Freezable,
    Freeze,
    NotFreezable,
    Resume,
    StayFrozen,
    WorkerCopied,
)
from coding_gym_server.ipc.streams import adopt_descriptors, flush_streams, open_stream
from coding_gym_server.ipc.widget_messages import WIDGETS_SIGNAL, FoundWidgets
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import user_namespaces
from coding_gym_server.linux.cloning import clone_sibling
from coding_gym_server.linux.forking import die_with_parent
from coding_gym_server.linux.inherited_state import renew_inherited_state
from coding_gym_server.worker import gui_events as gui
from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.output import Output
from coding_gym_server.worker.backends.registry import backend_class
from coding_gym_server.worker.branching import freezing
from coding_gym_server.worker.branching.census import Held, take_census
from coding_gym_server.worker.bytecode import distrust_bytecode_of_recent_files
from coding_gym_server.worker.widgets.reader import read_widgets
from coding_gym_server.worker.widgets.wakeup import end_qt_loops, forget_wakeups, wakeup_descriptors
from coding_gym_server.workspace.image_programs import ImagePrograms
from coding_gym_server.workspace.layout import Layout

__all__ = ["Worker", "warm_up"]

_HIGH_DESCRIPTOR = 200
"""Lowest number for the worker's own descriptors, so that they do not collide with those of user code."""

_WARM_UP_RUNS = 10
"""Repetitions of the warm-up: CPython specializes bytecode only after several executions."""

_Handler = Any

# Called twice per cell: without the enumerations of the module ``signal``, whose conversion takes longer than the calls.
_SIGINT, _IGNORE = int(signal.SIGINT), int(signal.SIG_IGN)


class Worker:
    """Executes cells sequentially until the server closes the channel.

    Args:
        channel: The channel to the server.
        stdout: The descriptor that becomes descriptor 1.
        stderr: The descriptor that becomes descriptor 2.
        layout: The directories of the session.
        backend: The name of the backend that executes the cells.
        profile: The isolation profile of the session.
        prepared: The Landlock ruleset from ``IsolationProfile.prepare_workers``, or None.
        authorized_imports: Modules that a backend with an import allowlist permits in addition to its own.
        programs: How user code runs if it is a program of another image, else None.
    """

    def __init__(
        self,
        channel: Channel[ToProcess],
        stdout: int,
        stderr: int,
        layout: Layout,
        *,
        backend: str,
        profile: IsolationProfile,
        prepared: int | None,
        authorized_imports: tuple[str, ...],
        programs: ImagePrograms | None = None,
    ) -> None:
        self._channel = channel
        self._outputs = (stdout, stderr)
        self._layout = layout
        self._backend_name = backend
        self._profile = profile
        self._prepared = prepared
        self._authorized_imports = authorized_imports
        self._programs = programs
        self._output = Output(self._send_result)
        # The last census, as long as it is true.
        self._held: Held | None = None
        # Threads that a cell has started can send results as well.
        self._sending = threading.Lock()
        # The SIGINT handler while user code runs; between cells SIGINT is ignored, so that a late interrupt has no effect.
        self._on_interrupt: _Handler = signal.default_int_handler
        self._is_executing = False
        # User code's trace and profile functions, which are not called for the worker's own functions between cells.
        self._trace: Any = None
        self._profiler: Any = None
        # Whether the server's question for widgets may be answered now, and whether it waits for its answer.
        self._may_answer = self._is_asked = False

    def run(self) -> None:
        """Serve requests until the channel closes, then exit the process."""
        try:
            self._serve()
        finally:
            # Whatever user code has done to this process: the exit code reports the outcome, not a traceback of the worker.
            os._exit(1)

    def _serve(self) -> None:
        os.setsid()
        renew_inherited_state()
        self._adopt_descriptors()
        self._profile.apply_to_worker(self._prepared)
        if self._programs is not None:
            user, group, groups, _ = self._programs.account
            user_namespaces.become(user, group, groups)
        self._pid = os.getpid()
        self._root = os.getppid()
        signal.signal(WIDGETS_SIGNAL, lambda *_: self._answer_widgets())
        signal.signal(CLOSE_SIGNAL, lambda *_: self._end_cell())
        distrust_bytecode_of_recent_files()
        backend = backend_class(self._backend_name)(self._output, authorized_imports=self._authorized_imports)
        while True:
            request, descriptors = self._next_request()
            match request:
                case Configure() as settings:
                    self._enter_workspace(settings.directory)
                    os.environ.update(settings.variables)
                    if settings.display is not None:
                        gui.offer_screen(settings.display, settings.display_cookie, self._layout)
                    _seed(None if settings.seed is None else int(settings.seed, 16))
                    backend.configure(show_value=settings.show_value)
                case Execute() as cell:
                    self._execute(backend, cell)
                case Freeze():
                    self._take_census()
                case CopyWorker():
                    self._leave_copy(*descriptors)
                case StayFrozen():
                    self._channel.send(WorkerCopied(self._pid))
                    self._wait_to_thaw(*descriptors)

    def _next_request(self) -> tuple[ToProcess, list[int]]:
        if self._held is None:
            with self._answering():
                gui.pump_until(self._channel.has_request)
                return self._channel.receive(), []
        # Only then can there be descriptors. Nothing else runs meanwhile, so that the census stays true.
        return self._channel.receive_with_descriptors()

    def _execute(self, backend: ExecutorBackend, cell: Execute) -> None:
        self._held = None
        self._repair_streams()
        self._output.begin(rich=cell.rich)
        gui.forget_closing()
        exit_code: int | None = None
        try:
            _signal.signal(_SIGINT, self._on_interrupt)
            self._is_executing = True
            with self._observers(), self._answering():
                if cell.environment:
                    with backend.environment(cell.environment):
                        exit_code = backend.execute(cell.code)
                else:
                    exit_code = backend.execute(cell.code)
            flush_streams()
            self._is_executing = False
            self._on_interrupt = _signal.signal(_SIGINT, _IGNORE)
        except BaseException as error:  # noqa: BLE001
            # An interrupt arrived before the cell began, or between its end and SIG_IGN; or the user's trace function raised.
            self._is_executing = False
            _signal.signal(_SIGINT, _IGNORE)
            if exit_code is None:
                exit_code = self._report(error)
        if os.getpid() != self._pid:
            # A child process that the cell forked has reached the end of the cell; only the worker reports the outcome.
            os._exit(exit_code)
        with self._sending:
            self._channel.send(Finished(exit_code, self._output.raised))

    def _end_cell(self) -> None:
        """Interrupt the cell, which has not closed its windows."""
        if self._is_executing and os.getpid() == self._pid and not end_qt_loops():
            raise KeyboardInterrupt

    def _report(self, error: BaseException) -> int:
        """Report an exception that kept a cell from beginning, and return the exit code of the cell."""
        with contextlib.suppress(BaseException):
            text = "".join(traceback.format_exception_only(error))
            if self._output.rich:
                self._output.error(type(error).__name__, str(error), text)
            else:
                sys.stderr.write(text)
        flush_streams()
        return 130 if type(error) is KeyboardInterrupt else 1

    @contextlib.contextmanager
    def _observers(self) -> Iterator[None]:
        """Call the trace and profile functions that an earlier cell has set, if it has not reset them."""
        if self._trace is not None:
            sys.settrace(self._trace)
        if self._profiler is not None:
            sys.setprofile(self._profiler)
        try:
            yield
        finally:
            self._trace, self._profiler = sys.gettrace(), sys.getprofile()
            if self._trace is not None:
                sys.settrace(None)
            if self._profiler is not None:
                sys.setprofile(None)

    @contextlib.contextmanager
    def _answering(self, *, allowed: bool = True) -> Iterator[None]:
        """Answer the question for widgets at any time in the block; without it, none that would split another message."""
        before, self._may_answer = self._may_answer, allowed
        try:
            self._answer_if_asked()
            yield
        finally:
            self._may_answer = before
            self._answer_if_asked()

    def _answer_if_asked(self) -> None:
        if self._may_answer and self._is_asked:
            self._answer_widgets()

    def _answer_widgets(self) -> None:
        self._is_asked = not self._may_answer
        if not self._is_asked and os.getpid() == self._pid:
            with self._answering(allowed=False):
                found = FoundWidgets(read_widgets())
                with self._sending:
                    self._channel.send(found)

    def _take_census(self) -> None:
        """Report whether a copy would be faithful."""
        flush_streams()
        own = {self._channel.fileno(), self._saved[0], *wakeup_descriptors()}
        held = take_census(own, {self._saved[1]: 1, self._saved[2]: 2}, self._layout.writable())
        if held.reasons:
            self._held = None
            self._channel.send(NotFreezable(held.reasons))
        else:
            self._held = held
            self._channel.send(Freezable())

    def _leave_copy(self, descriptor: int) -> None:
        """Leave a frozen copy. Returns in this worker, and in each worker that is forked from the copy."""
        if freezing.leave_copy(self._channel):
            self._wait_to_thaw(descriptor)
        else:
            os.close(descriptor)

    def _wait_to_thaw(self, descriptor: int) -> None:
        """Freeze. Returns in each worker that is forked from this process, when it is to continue."""
        held = self._held
        assert held is not None
        self._channel.close()
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
        os.close(descriptor)
        set_up = functools.partial(die_with_parent, self._root)
        connection, stdout, stderr = freezing.wait_to_thaw(moved, held.outputs, set_up=set_up)
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        forget_wakeups()
        self._pid = os.getpid()
        self._channel = Channel(socket.socket(fileno=connection))
        self._channel.move_up(_HIGH_DESCRIPTOR)
        request, namespaces = self._channel.receive_with_descriptors()
        in_fork = isinstance(request, EnterSlot)
        if in_fork:
            self._enter_slot(namespaces)
            request = self._channel.receive()
        assert isinstance(request, Resume)
        if os.getsid(0) != self._pid:
            # Until now, it belongs to the session of the frozen process, by which the root recognizes it.
            os.setsid()
        freezing.restore_descriptors(held, stdout, stderr, in_fork=in_fork)
        with contextlib.suppress(OSError):
            # Its inode is another one since the files were restored.
            os.chdir(held.directory)
        if request.display is not None:
            gui.offer_screen(request.display, request.display_cookie, self._layout)
        if request.seed is not None:
            _seed(int(request.seed, 16))
        self._held = None
        self._channel.send(WorkerCopied(self._pid))

    def _enter_slot(self, namespaces: list[int]) -> None:
        """Leave the session that the frozen worker belongs to, for a slot of its own."""
        try:
            session_user.join_slot(namespaces, max_tasks=self._profile.max_tasks)
            self._profile.apply_to_copy()
            if clone_sibling():
                os._exit(0)
        except OSError as error:
            self._channel.send(Failed(f"the copy of the interpreter cannot get its own namespaces: {error}"))
            os._exit(1)
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        self._pid, self._root = os.getpid(), os.getppid()

    def _send_result(self, result: CellResult) -> None:
        if os.getpid() != self._pid:
            return
        flush_streams()
        is_main = threading.current_thread() is threading.main_thread()
        with _uninterrupted(), self._answering(allowed=False) if is_main else contextlib.nullcontext(), self._sending:
            self._channel.send(result)
            if not result.is_value and is_main:
                # Display output must be placed before subsequent prints are read; a value is always last, so it needs no Ack.
                while not isinstance(self._channel.receive(), Ack):
                    pass

    def _adopt_descriptors(self) -> None:
        adopt_descriptors(*self._outputs)
        self._channel.move_up(_HIGH_DESCRIPTOR)
        self._saved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR) for number in range(3)]
        self._repair_streams()

    def _repair_streams(self) -> None:
        """Restore stdin, stdout and stderr for the next cell if the previous one has closed them."""
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if not _is_open(number):
                os.dup2(self._saved[number], number)
            stream = getattr(sys, name, None)
            if not _is_usable(stream):
                stream = open_stream(number)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)

    def _enter_workspace(self, directory: str | None) -> None:
        try:
            os.chdir(self._layout.at(directory).work)
        except OSError:
            # The directory has been removed, or has become inaccessible, since it was checked.
            os.chdir(self._layout.work)
        os.environ.update(self._layout.at(directory).variables())
        tempfile.tempdir = None
        sys.argv = [""]
        sys.path.insert(0, "")


def warm_up() -> None:
    """Run operations of every worker in the zygote, so that workers inherit the caches of the interpreter.

    A worker that fills a cache itself causes a copy-on-write of a memory page.
    """
    for _ in range(_WARM_UP_RUNS):
        _seed(None)
        _signal.signal(_SIGINT, _IGNORE)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer interrupts: a partially sent message would corrupt the channel."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_open(descriptor: int) -> bool:
    try:
        os.get_inheritable(descriptor)
    except OSError:
        return False
    return True


def _is_usable(stream: Any) -> bool:
    """Return whether a stream appears to be writable, without writing to it."""
    try:
        return stream is not None and not stream.closed
    except AttributeError:
        # Not every file-like object of user code has the attribute.
        return hasattr(stream, "write")
    except BaseException:  # noqa: BLE001 - such as the ValueError of a detached stream
        return False


def _seed(seed: int | None) -> None:
    if seed is not None:
        random.seed(seed)
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    if numpy_random is not None:
        # The fork has reseeded ``random``; gathering separate entropy for NumPy would take a millisecond.
        numpy_random.seed(random.getrandbits(32) if seed is None else seed % 2**32)
