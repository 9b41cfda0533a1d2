"""Spawner of a session: starts the programs that run beside its worker.

A session root has hundreds of mappings from the zygote, which each of its forks copies. This is a small interpreter, which the
root starts before the first program, and which forks in a fraction of the time, and before the next request. It has the rights
of the root, runs no user code, and imports nothing but the standard library, to start fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket

from coding_gym_server.linux.forking import adopt_orphans
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.spawner.program import Confinement
from coding_gym_server.spawner.shim import Shim, fork_for_request

__all__ = ["main"]

_PR_SET_DUMPABLE = 4


def main(requests: str, ruleset: str, *user: str) -> None:
    """Start programs until the server closes the socket.

    Args:
        requests: Descriptor number of the socket of requests, which waiting programs receive.
        ruleset: Descriptor number of the Landlock ruleset of programs; empty if they have none.
        *user: Ids of the user of programs, of its group and of its other groups; none if it is that of this process.
    """
    for descriptor in filter(None, (requests, ruleset)):
        os.set_inheritable(int(descriptor), False)
    # Orphans of programs must not count as processes of cells.
    adopt_orphans()
    _stop_ignoring_signals()
    # Programs have the same user, but must not write the memory of what starts them. They become dumpable by their exec.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    gc.freeze()
    confinement = Confinement(int(ruleset) if ruleset else None, tuple(map(int, user)))
    shim = _Spawner(socket.socket(fileno=int(requests)), confinement).serve()
    if shim is not None:
        shim.run()


def _stop_ignoring_signals() -> None:
    """Restore the default effect of signals that Python or the process that started the server ignores, except SIGPIPE."""
    for number in range(1, signal.NSIG):
        if number != signal.SIGPIPE and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class _Spawner:
    """Keep one shim ready, whose program waits for the next request.

    Args:
        requests: Socket of the server's requests.
        confinement: Confinement of programs.
    """

    def __init__(self, requests: socket.socket, confinement: Confinement) -> None:
        self._requests = requests
        self._confinement = confinement
        self._pid = os.getpid()
        self._exits = ChildExits()

    def serve(self) -> Shim | None:
        """Return the shim in each forked process, and None in the spawner once the server has closed the socket."""
        while True:
            started, closed_at_start = os.pipe()
            if fork_for_request(self._requests, on_wait=self._reap) == 0:
                os.close(started)
                exits, own = self._exits, self._pid
                return Shim(self._requests, exits, parent=own, confinement=self._confinement, started=closed_at_start)
            os.close(closed_at_start)
            is_open = self._wait_for_start(started)
            os.close(started)
            if not is_open:
                return None

    def _wait_for_start(self, started: int) -> bool:
        """Wait until the shim that is ready has a request, or has died; return whether the server keeps the socket open."""
        poll = select.poll()
        # For no event but its end.
        poll.register(self._requests.fileno(), 0)
        poll.register(started, select.POLLIN)
        poll.register(self._exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._requests.fileno() in ready:
                return False
            if self._exits.fileno() in ready:
                self._exits.clear()
                self._reap()
            if started in ready:
                return True

    def _reap(self) -> None:
        """Reap shims that have exited, and orphans of their programs."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
