"""Gate: lets chosen processes of a sandboxed process tree join namespaces, and limits their netlink sockets.

A seccomp filter applies to a process and all its descendants alike, so it cannot tell the trusted set-up of a worker from the
user code that runs later, and it counts nothing. This one suspends each caller of setns(2), and each that opens a netlink
socket, until the session root has answered (see seccomp_unotify(2)). The root looks at the caller's process id only, not at
arguments that could change meanwhile.
"""

from __future__ import annotations

import errno

from coding_gym_server.isolation import seccomp
from coding_gym_server.isolation.notifications import Listener
from coding_gym_server.linux import procfs

__all__ = ["Gate"]

_MAX_NETLINK_SOCKETS = 16
"""Maximum number in a network namespace: what the kernel queues for them is charged to no control group."""


class Gate:
    """Answers the notifications of one filter.

    Args:
        listener: The listener from ``seccomp.install_with_gate``. The gate takes ownership of it.
    """

    def __init__(self, listener: int) -> None:
        self._listener = Listener(listener)
        self._calls_left: dict[int, int] = {}

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a process asks for admission."""
        return self._listener.fileno()

    def close(self) -> None:
        """Close the listener, in a forked child that must not decide."""
        self._listener.close()

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
        notification = self._listener.receive()
        if notification is not None:
            joins = seccomp.joins_namespace(notification.call)
            refusal = self._join(notification.thread) if joins else _open_netlink_socket(notification.thread)
            self._listener.answer(notification, refusal or None)

    def _join(self, pid: int) -> int:
        """Return the error of a process that joins a namespace, 0 for none."""
        left = self._calls_left.get(pid, 0)
        if left == 0:
            return errno.EPERM
        self._calls_left[pid] = left - 1
        return 0


def _open_netlink_socket(pid: int) -> int:
    """Return the error of a process that opens a netlink socket, 0 for none."""
    return errno.EMFILE if procfs.netlink_sockets(pid) >= _MAX_NETLINK_SOCKETS else 0
