"""Census of the state of a worker outside of its memory, and of the obstacles to a faithful copy."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from coding_gym_server.worker.branching.mappings import describe_mappings, remember_mappings
from coding_gym_server.worker.branching.open_files import OpenFile, examine, find_shared

__all__ = ["Held", "IdleLoop", "remember_inherited", "take_census"]

_MIN_OPEN_FILES = 256
_THREAD_EXIT_SECONDS = 0.2
_PIPE_BYTES = 1 << 16
_TIMERS = {signal.ITIMER_REAL: "real", signal.ITIMER_VIRTUAL: "virtual", signal.ITIMER_PROF: "profiling"}

# User code may have replaced the builtin.
_open = open

_inherited_descriptors: frozenset[str] = frozenset()


class IdleLoop(NamedTuple):
    """Event loop of asyncio that does not run and watches nothing.

    Attributes:
        loop: The loop.
        pending: What waits in its pipe: numbers of signals, and zeros that wake it up.
    """

    loop: Any
    pending: bytes


class Held(NamedTuple):
    """State of a worker outside of its memory.

    Attributes:
        reasons: Why a copy would not be faithful, empty if it would be.
        outputs: Number of the standard stream, 1 or 2, of each descriptor that refers to its pipe, the worker's own included.
        files: Files and directories that can be opened again.
        directory: The working directory, empty if it was removed: a copy is in it as well.
        loops: Idle event loops of asyncio.
    """

    reasons: list[str]
    outputs: dict[int, int]
    files: list[OpenFile]
    directory: str
    loops: list[IdleLoop]


def remember_inherited() -> None:
    """Record what the calling process, the zygote, has open: each worker inherits it, and none changes it."""
    global _inherited_descriptors
    remember_mappings()
    _inherited_descriptors = frozenset(_descriptors().values())


def take_census(own: Collection[int], streams: Mapping[int, int], writable: Collection[str]) -> Held:
    """Return what the calling process holds.

    Args:
        own: Descriptors of the worker itself.
        streams: Descriptors that refer to the output pipes, each with the number of its standard stream.
        writable: Directories whose files are copied along, so that files open for writing can be opened again.
    """
    try:
        return _take_census(own, streams, writable)
    except Exception as error:  # noqa: BLE001 - from a function of ``os`` that user code has replaced, or its audit hook
        return Held([f"what the interpreter has open cannot be listed: {error!r}"], {}, [], "", [])


def _take_census(own: Collection[int], streams: Mapping[int, int], writable: Collection[str]) -> Held:
    reasons = [*_threads(), *_children(), *_timers(), *_signals(), *_limits(), *describe_mappings(writable)]
    descriptors = _descriptors()
    loops = _idle_loops() if "anon_inode:[eventpoll]" in descriptors.values() else {}
    pipes = {descriptors[number]: stream for number, stream in streams.items()}
    directory = _working_directory(reasons)
    held = Held(reasons, {}, [], directory, list({id(idle.loop): idle for idle in loops.values()}.values()))
    for number, target in descriptors.items():
        if number in own or number in loops or target in _inherited_descriptors:
            continue
        if target in pipes:
            held.outputs[number] = pipes[target]
        elif target.startswith("/"):
            match examine(number, target, writable):
                case str() as obstacle:
                    reasons.append(obstacle)
                case OpenFile() as file:
                    held.files.append(file)
        else:
            kind = target.partition(":")[0] if not target.startswith("anon_inode:") else target.partition(":")[2]
            reasons.append(f"descriptor {number}, a {kind}")
    return held if reasons else held._replace(files=find_shared(held.files))


def _threads() -> list[str]:
    names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    deadline = time.monotonic() + (0 if names else _THREAD_EXIT_SECONDS)
    while count := len(os.listdir("/proc/self/task")) - 1:
        if time.monotonic() >= deadline:
            return [f"{count} running threads ({', '.join(names) or 'not of Python'})"]
        # A thread that has been joined may not have left the kernel yet.
        time.sleep(0.001)
    return []


def _children() -> list[str]:
    with _open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        children = file.read().split()
    if not children:
        return []
    with contextlib.suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return [f"{len(children)} child processes, of which at least one has ended and was not waited for"]
    return [f"{len(children)} child processes"]


def _timers() -> list[str]:
    found = [f"a {name} interval timer" for timer, name in _TIMERS.items() if signal.getitimer(timer)[0]]
    with contextlib.suppress(OSError), _open("/proc/self/timers", "rb") as file:
        if file.read(1):
            found.append("a POSIX timer")
    return found


def _signals() -> list[str]:
    pending = sorted(str(getattr(number, "name", number)) for number in signal.sigpending())
    return [f"signals that are blocked and pending ({', '.join(pending)})"] if pending else []


def _limits() -> list[str]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [f"a limit of {limit} open files: a copy needs {_MIN_OPEN_FILES}"] if 0 <= limit < _MIN_OPEN_FILES else []


def _working_directory(reasons: list[str]) -> str:
    """Return the working directory, empty if it was removed."""
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        return ""
    try:
        os.chdir(directory)
    except OSError:
        reasons.append(f"the working directory {directory}, which cannot be entered again")
    return directory


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of the listing itself is closed again.
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _idle_loops() -> dict[int, IdleLoop]:
    """Return the event loops of asyncio that do not run and watch nothing, by their descriptors."""
    events: Any = sys.modules.get("asyncio.selector_events")
    found: dict[int, IdleLoop] = {}
    if events is None:
        return found
    for loop in gc.get_objects():
        if not issubclass(type(loop), events.BaseSelectorEventLoop) or loop.is_closed() or loop.is_running():
            continue
        if type(loop._selector) is selectors.EpollSelector and len(loop._selector.get_map()) == 1:
            numbers = loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()
            found |= dict.fromkeys(numbers, IdleLoop(loop, _pending(loop._ssock)))
    return found


def _pending(pipe: socket.socket) -> bytes:
    try:
        return pipe.recv(_PIPE_BYTES, socket.MSG_PEEK)
    except BlockingIOError:
        return b""
