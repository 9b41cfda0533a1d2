"""Notifications of seccomp filters: system calls that wait for the decision of another process (see seccomp_unotify(2))."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import NamedTuple

__all__ = ["Listener", "Notification"]

# struct seccomp_notif, struct seccomp_notif_resp.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE = 3 << 30 | _NOTIFICATION.size << 16 | ord("!") << 8
_SEND = 3 << 30 | _ANSWER.size << 16 | ord("!") << 8 | 1
_CONTINUE = 1


class Notification(NamedTuple):
    """A thread that waits.

    Attributes:
        identifier: Id of the notification.
        thread: Thread id.
        call: Number of the system call.
        arguments: Its arguments. What they point to may change meanwhile.
    """

    identifier: int
    thread: int
    call: int
    arguments: tuple[int, ...]


class Listener:
    """Descriptor of the notifications of a filter.

    Args:
        descriptor: The descriptor, of which this takes ownership.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a thread waits."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor: all calls fail."""
        os.close(self._descriptor)

    def receive(self) -> Notification | None:
        """Return the thread that waits, None if it has been killed meanwhile."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, notification)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        identifier, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(notification)
        return Notification(identifier, thread, call, tuple(arguments))

    def answer(self, notification: Notification, result: int | None) -> None:
        """Let a thread continue, unless it has been killed meanwhile.

        Args:
            notification: The notification.
            result: Error number of its call, 0 for success; None if the kernel is to execute it.
        """
        identifier = notification.identifier
        answer = (identifier, 0, 0, _CONTINUE) if result is None else (identifier, 0, -result, 0)
        try:
            fcntl.ioctl(self._descriptor, _SEND, _ANSWER.pack(*answer))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
