"""Gate to namespaces: lets chosen processes of a sandboxed process tree join namespaces, and refuses all others.

A seccomp filter applies to a process and all its descendants alike, so it cannot tell the trusted set-up of a worker from the
user code that runs later. This one suspends each caller of setns(2) until the session root has answered (see
seccomp_unotify(2)). The root looks at the caller's process id only, not at arguments that could change meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

__all__ = ["NamespaceGate"]

_NOTIFICATION = struct.Struct("=QII64x")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE = 3 << 30 | _NOTIFICATION.size << 16 | ord("!") << 8
_SEND = 3 << 30 | _ANSWER.size << 16 | ord("!") << 8 | 1
_CONTINUE = 1


class NamespaceGate:
    """Answers the notifications of one filter.

    Args:
        listener: The listener from ``seccomp.install_with_gate``. The gate takes ownership of it.
    """

    def __init__(self, listener: int) -> None:
        self._listener = listener
        self._calls_left: dict[int, int] = {}

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a process asks for admission."""
        return self._listener

    def close(self) -> None:
        """Close the listener, in a forked child that must not decide."""
        os.close(self._listener)

    def admit(self, pid: int, calls: int) -> None:
        """Let a process join namespaces.

        Args:
            pid: Its process id.
            calls: Number of times.
        """
        self._calls_left[pid] = calls

    def revoke(self, pid: int) -> None:
        """Let a process join no more namespaces."""
        self._calls_left.pop(pid, None)

    def answer(self) -> None:
        """Answer one process that asks for admission; it may have been killed meanwhile."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notification)
            identifier, pid, _ = _NOTIFICATION.unpack(notification)
            left = self._calls_left.get(pid, 0)
            if left:
                self._calls_left[pid] = left - 1
            answer = (identifier, 0, 0, _CONTINUE) if left else (identifier, 0, -errno.EPERM, 0)
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(*answer))
        except FileNotFoundError:
            return
