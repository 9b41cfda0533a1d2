"""Signal gate: sends the signals of a session that neither a pid namespace nor a Landlock scope keeps from other processes.

A second filter, which a worker, a submission and a program's spawner get when they are forked, suspends each caller of kill(2)
and the like until the session root has answered (see seccomp_unotify(2)). What a process sends to itself the kernel does. All
else the root does, and only to processes below itself: it holds a descriptor of each, so that a process id that is in use again
meanwhile stands for no other process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
from collections.abc import Iterable

from coding_gym_server.isolation import seccomp
from coding_gym_server.isolation.notifications import Listener, Notification
from coding_gym_server.linux import procfs

__all__ = ["SignalGates"]

_libc = ctypes.CDLL(None, use_errno=True)


class SignalGates:
    """The gates of all processes of a session root: each of its children installs a filter of its own."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listeners: dict[int, Listener] = {}

    def register(self, poll: select.poll) -> None:
        """Let a poll object report what ``handle`` handles."""
        poll.register(self._ours.fileno(), select.POLLIN)

    def install(self) -> None:
        """Install the filter in the calling process, a forked child, for which the root answers from now on."""
        for listener in self._listeners.values():
            listener.close()
        self._ours.close()
        with self._theirs:
            descriptor = seccomp.install_signal_filter()
            if descriptor is not None:
                socket.send_fds(self._theirs, [b"l"], [descriptor])
                os.close(descriptor)

    def handle(self, descriptor: int, events: int, poll: select.poll) -> None:
        """Handle what a poll object has reported, if it is about one of the gates."""
        if descriptor == self._ours.fileno():
            _, received, _, _ = socket.recv_fds(self._ours, 1, 1)
            for number in received:
                self._listeners[number] = Listener(number)
                poll.register(number, select.POLLIN)
        elif (listener := self._listeners.get(descriptor)) is not None:
            if events & select.POLLIN:
                if (notification := listener.receive()) is not None:
                    listener.answer(notification, _result_of(notification))
            else:
                # No process with the filter is left.
                poll.unregister(descriptor)
                self._listeners.pop(descriptor).close()


def _result_of(notification: Notification) -> int | None:
    """Send the signal of a notification; return 0 or an error number, or None if the kernel is to send it."""
    sender = procfs.process_of(notification.thread)
    name = seccomp.signal_call(notification.call)
    first, second, third = (_signed(argument) for argument in notification.arguments[:3])
    match name:
        case "kill":
            return None if first == sender else _send(_targets(sender, first), second)
        case "rt_sigqueueinfo":
            return None if first == sender else _send([procfs.process_of(first)], second)
        case "tkill":
            # Not by the kernel: the id may be that of another process meanwhile, which tgkill(2) checks.
            target = procfs.process_of(first)
            return _to_thread(sender, first, second) if target == sender else _send([target], second)
        case "tgkill" | "rt_tgsigqueueinfo":
            return None if first == sender else _send([first], third)
    with contextlib.suppress(OSError, IndexError):
        return _send([procfs.pid_of(first, of=notification.thread)], second)
    return errno.EPERM


def _targets(sender: int, target: int) -> Iterable[int]:
    """Return the processes that an argument of kill(2) stands for, parents before their children.

    The kernel signals a whole group at once. Here, a parent must not see the end of a child before its own signal arrives.
    """
    if target > 0:
        # Which may be given by the id of a thread.
        return [procfs.process_of(target)]
    members = sorted(procfs.descendants(os.getpid()), key=lambda pid: len(procfs.ancestors(pid)))
    if target == -1:
        return [pid for pid in members if pid != sender]
    with contextlib.suppress(ProcessLookupError):
        group = os.getpgid(sender) if target == 0 else -target
        return [pid for pid in members if procfs.group_of(pid) == group]
    return ()


def _to_thread(process: int, thread: int, number: int) -> int:
    """Send a signal to a thread; return 0 or an error number."""
    if _libc.tgkill(process, thread, number) == 0:
        return 0
    return ctypes.get_errno()


def _send(targets: Iterable[int], number: int) -> int:
    """Send a signal to those of the processes that are below the calling one; return 0, or an error number if none is."""
    results = [_send_to(pid, number) for pid in targets]
    return min(results, default=errno.ESRCH)


def _send_to(pid: int, number: int) -> int:
    """Send a signal to a process if it is below the calling one; return 0 or an error number."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return errno.ESRCH
    try:
        # Only now, when its number cannot become that of another process.
        if os.getpid() not in procfs.ancestors(pid):
            return errno.EPERM
        signal.pidfd_send_signal(process, number)
    except OSError as error:
        return error.errno or errno.ESRCH
    finally:
        os.close(process)
    return 0


def _signed(argument: int) -> int:
    """Return the ``int`` that the kernel reads from the register of an argument."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
