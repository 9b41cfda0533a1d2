"""Handling of the server's signals while the event loop of a toolkit runs: of that which asks for widgets, and the interrupt.

Python handles a signal between two of its own instructions, and an event loop in C executes none until an event calls a
function of the program. So Tk and Qt get their own event: a socket to which Python's signal handlers write (see
``signal.set_wakeup_fd``), and whose filter drops all other signals. PyGObject has the same for GTK.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from coding_gym_server.ipc.messages import CLOSE_SIGNAL
from coding_gym_server.ipc.widget_messages import WIDGETS_SIGNAL
from coding_gym_server.worker.widgets.qt import QT_BINDINGS

__all__ = ["end_qt_loops", "forget_wakeups", "handle_signals_in_toolkits", "wakeup_descriptors"]

_ADD_ROUTINE = "_Z14qAddPreRoutinePFvvE"
"""``void qAddPreRoutine(void (*)())``, as C++ compilers call it."""

_QT_CORE = ("libQt6Core", "libQt5Core", "libQt6Core_conda", "QtCore")
_READ_BYTES = 16
_INTERRUPTED = 130
_FILTER = (
    (0x30, 0, 0, 0),
    (0x15, 1, 0, WIDGETS_SIGNAL),
    (0x15, 0, 1, CLOSE_SIGNAL),
    (0x06, 0, 0, _READ_BYTES),
    (0x06, 0, 0, 0),
)
"""Load the first byte; if it is one of the signals, keep the datagram, else drop it (see ``linux/filter.h``)."""

_INSTRUCTION, _PROGRAM = struct.Struct("HBBI"), struct.Struct("HP")
_SO_ATTACH_FILTER = 26
_sockets: list[socket.socket] = []
_kept: list[Any] = []
"""Objects that C code refers to."""


def handle_signals_in_toolkits() -> None:
    """Let the event loops of Tk and Qt handle the signal, once the program imports them. Idempotent."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        for name, prepare in _PREPARE.items():
            if name in sys.modules:
                prepare(sys.modules[name])


def end_qt_loops() -> bool:
    """End the event loops that Qt runs in this thread; return whether there are any. An exception would only be printed."""
    for binding in QT_BINDINGS:
        core: Any = sys.modules.get(f"{binding}.QtCore")
        # User code may have changed anything.
        with contextlib.suppress(Exception):
            if core is not None and core.QThread.currentThread().loopLevel():
                core.QCoreApplication.exit(_INTERRUPTED)
                return True
    return False


def wakeup_descriptors() -> set[int]:
    """Return the descriptors of the socket, if there is one."""
    return {end.fileno() for end in _sockets}


def forget_wakeups() -> None:
    """Close the socket, which a copy of a process shares with it; the next application gets another one."""
    if _sockets:
        signal.set_wakeup_fd(-1)
        while _sockets:
            _sockets.pop().close()


class _Finder:
    """Finder of modules that prepares a toolkit after its import; it finds nothing itself."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of a toolkit's module; None for all other modules."""
        if name not in _PREPARE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def execute_and_prepare(module: ModuleType) -> None:
                execute(module)
                with contextlib.suppress(Exception):
                    _PREPARE[name](module)

            loader.exec_module = execute_and_prepare
        return spec


def _prepare_tk(tkinter: Any) -> None:
    """Watch the socket in each application, which ``_tkinter.create`` makes."""
    create = tkinter._tkinter.create

    def create_and_watch(*arguments: Any) -> Any:
        application = create(*arguments)
        with contextlib.suppress(Exception):
            # An interpreter without Tk has no windows, and no such variable.
            application.getvar("tk_version")
            if (read := _reading_end()) is not None:
                application.createfilehandler(read.fileno(), tkinter.READABLE, lambda *_: _drain(read))
        return application

    tkinter._tkinter.create = create_and_watch


def _prepare_qt(core: Any) -> None:
    """Watch the socket in each application: Qt calls this start-up function in its constructor."""
    path = next((path for path in _mapped_files() if os.path.basename(path).split(".")[0] in _QT_CORE), None)
    if path is not None:
        routine = ctypes.CFUNCTYPE(None)(lambda: _watch_in_qt(core))
        _kept.append(routine)
        getattr(ctypes.CDLL(path), _ADD_ROUTINE)(routine)


def _watch_in_qt(core: Any) -> None:
    if (read := _reading_end()) is not None:
        notifier = core.QSocketNotifier(read.fileno(), core.QSocketNotifier.Type.Read)
        # PySide crashes if a signal handler raises an exception while the arguments of the notification are converted.
        timer = core.QTimer()
        timer.setSingleShot(True)
        timer.setInterval(0)
        notifier.activated.connect(timer.start)
        timer.timeout.connect(lambda: _drain(read))
        _kept.extend((notifier, timer))


def _mapped_files() -> set[str]:
    with open("/proc/self/maps", "rb") as maps:
        return {os.fsdecode(line.rstrip(b"\n").split(None, 5)[-1]) for line in maps if b"/" in line}


def _reading_end() -> socket.socket | None:
    """Return the end of the socket that becomes readable with the signal; None if the program handles signals otherwise."""
    if threading.current_thread() is not threading.main_thread():
        return None
    if not _sockets:
        read, write = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        instructions = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*words) for words in _FILTER))
        read.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(_FILTER), ctypes.addressof(instructions)))
        read.setblocking(False)
        write.setblocking(False)
        _sockets.extend((read, write))
    read, write = _sockets
    before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    if before not in (-1, write.fileno()):
        # The program's own, such as that of asyncio.
        signal.set_wakeup_fd(before)
        return None
    return read


def _drain(read: socket.socket) -> None:
    # That Python runs is enough: it handles the signal before the next instruction.
    with contextlib.suppress(OSError):
        read.recv(_READ_BYTES)


_PREPARE: dict[str, Callable[[Any], None]] = {
    "tkinter": _prepare_tk,
    **{f"{binding}.QtCore": _prepare_qt for binding in QT_BINDINGS},
}
"""Preparation of each toolkit, by the module whose import loads it."""
