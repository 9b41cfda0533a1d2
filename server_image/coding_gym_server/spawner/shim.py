"""Shim: the parent of one program, which reports its end to the server and sends it signals.

It is a subreaper, and has its own signal scope, in which the program has another one. So the program cannot signal the
shim, and a ``kill(-1)`` of the shim reaches exactly the program and its descendants, daemons included.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from coding_gym_server.ipc.program_messages import DESCRIPTORS, EXITED, FAILED, MAX_REQUEST_BYTES, REPORT, SIGNALED
from coding_gym_server.linux import landlock_domain
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.spawner.program import Confinement, Program

__all__ = ["Shim", "fork_for_request"]

_READ_BYTES = 1 << 16
_KILL_SECONDS = 1.0


class Shim:
    """Parent of a program, in a process that was forked from the spawner.

    It forks the program before there is a request, because forks take most of the time of a start.

    Args:
        requests: Socket of the server's requests.
        exits: The spawner's notification of exits.
        parent: Process id of the spawner.
        confinement: Confinement of the program.
        started: Descriptor to close once there was a request.
    """

    def __init__(
        self, requests: socket.socket, exits: ChildExits, *, parent: int, confinement: Confinement, started: int
    ) -> None:
        self._requests = requests
        self._exits = exits
        self._parent = parent
        self._confinement = confinement
        self._started = started

    def run(self) -> None:
        """Run the program, and exit after it."""
        try:
            die_with_parent(self._parent)
            adopt_orphans()
            self._is_scoped = self._enter_scope()
            self._exits.renew()
            ours, theirs = socket.socketpair()
            shim = os.getpid()
            program = fork_for_request(self._requests)
            if program is None:
                return
            self._program = program
            if program == 0:
                os.close(self._started)
                ours.close()
                die_with_parent(shim)
                Program(self._requests, theirs, confinement=self._confinement).run()
            theirs.close()
            self._requests.close()
            control = self._wait_for_start(ours)
            os.close(self._started)
            if control is not None:
                self._supervise(control)
        finally:
            os._exit(0)

    def _enter_scope(self) -> bool:
        """Enter a signal scope; return whether there is one: the kernel may not support it."""
        if self._confinement.ruleset is None:
            return False
        try:
            landlock_domain.enter(self._confinement.ruleset)
        except OSError:
            # The program will fail for the same reason, and report it.
            return False
        try:
            os.kill(self._parent, 0)
        except PermissionError:
            return True
        except ProcessLookupError:
            pass
        return False

    def _wait_for_start(self, program: socket.socket) -> int | None:
        """Return the control socket of the program, None if the process that waits for a request has exited."""
        poll = select.poll()
        poll.register(program.fileno(), select.POLLIN)
        poll.register(self._exits.fileno(), select.POLLIN)
        poll.poll()
        _, descriptors, _, _ = socket.recv_fds(program, 1, 1, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
        return descriptors[0] if descriptors else None

    def _supervise(self, control: int) -> None:
        """Send the program the signals that the server requests, and report its end."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self._exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._exits.fileno() in ready:
                self._exits.clear()
                status = self._reap()
                if status is not None:
                    _report(control, EXITED, status)
                    return
            if control in ready:
                requests = b""
                # The server resets the connection if it closes it with an unread report.
                with contextlib.suppress(OSError):
                    requests = os.read(control, _READ_BYTES)
                # The server has forgotten a program whose socket it closes.
                for number in requests or [signal.SIGKILL]:
                    self._send_signal(number)
                    _report(control, SIGNALED)
                if not requests:
                    return

    def _reap(self) -> int | None:
        """Reap exited children; return the wait status of the program if it is one of them."""
        with contextlib.suppress(ChildProcessError):
            while (exited := os.waitpid(-1, os.WNOHANG))[0]:
                if exited[0] == self._program:
                    return exited[1]
        return None

    def _send_signal(self, number: int) -> None:
        """Send a signal to the process group of the program; SIGKILL also to all its descendants."""
        # Not reaped yet, so the process id still belongs to it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program, number)
        if number == signal.SIGKILL:
            self._kill_descendants()

    def _kill_descendants(self) -> None:
        if self._is_scoped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        # Imported here because it imports much.
        from coding_gym_server.linux import procfs

        # Without a signal scope, kill(-1) would reach other sessions: kill by pid until no process is left.
        deadline = time.monotonic() + _KILL_SECONDS
        while (pids := procfs.descendants(os.getpid())) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.0005)


def fork_for_request(requests: socket.socket, *, on_wait: Callable[[], None] | None = None) -> int | None:
    """Fork; if that is not possible, again once there is a request, which is refused if it is still not possible.

    Args:
        requests: Socket of the server's requests.
        on_wait: Called before each retry.

    Returns:
        The result of the fork, None after a refusal.
    """
    with contextlib.suppress(OSError):
        return fork_when_possible(fork_bare, on_wait=on_wait)
    select.select([requests], [], [])
    try:
        return fork_when_possible(fork_bare, on_wait=on_wait)
    except OSError as error:
        _refuse_request(requests, error)
        return None


def _refuse_request(requests: socket.socket, error: OSError) -> None:
    _, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if descriptors:
        _report(descriptors[0], FAILED, error.errno or 0)
    for descriptor in descriptors:
        os.close(descriptor)


def _report(control: int, kind: int, value: int = 0) -> None:
    # The server may have closed the socket.
    with contextlib.suppress(OSError):
        os.write(control, REPORT.pack(kind, value))
