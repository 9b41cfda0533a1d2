"""Program: what a client runs in a session beside the worker, with the rights of the worker."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import termios
import warnings  # noqa: F401 - os.execvpe imports it, in each program anew otherwise
from typing import NamedTuple, NoReturn

from coding_gym_server.ipc.program_messages import (
    DESCRIPTORS,
    FAILED,
    MAX_REQUEST_BYTES,
    REPORT,
    STARTED,
    TERMINAL_SIZE,
    WITH_OWN_TERMINAL,
    WITH_STREAMS,
    unpack_program,
)
from coding_gym_server.linux import landlock_domain
from coding_gym_server.linux.accounts import find_account
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.linux.terminals import open_terminal

__all__ = ["Confinement", "Program"]

_CANNOT_EXECUTE = 126
_NOT_FOUND = 127
_FIRST_DESCRIPTOR_OF_OURS = 3


class Confinement(NamedTuple):
    """Confinement of programs.

    Attributes:
        ruleset: Descriptor of a Landlock ruleset, None for none.
        user: Ids of the user, of its group and of its other groups; empty if it is that of the spawner.
    """

    ruleset: int | None
    user: tuple[int, ...]


class Program:
    """Process that waits for a request, and is replaced by the requested program.

    Args:
        requests: Socket of the server's requests.
        shim: Socket on which it passes the control socket of the request to its parent.
        confinement: Its confinement.
    """

    def __init__(self, requests: socket.socket, shim: socket.socket, *, confinement: Confinement) -> None:
        self._requests = requests
        self._shim = shim
        self._confinement = confinement

    def run(self) -> NoReturn:
        """Execute the program. On failure, the exit code and a line on stderr tell why, as a shell does."""
        exit_code = _CANNOT_EXECUTE
        subject = b"the sandbox"
        try:
            failure = self._confine()
            request, descriptors, _, _ = socket.recv_fds(
                self._requests, MAX_REQUEST_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
            if request:
                control, file, *streams = descriptors
                socket.send_fds(self._shim, [b"."], [control])
                _start(request, control, streams)
                if failure is not None:
                    raise failure
                argv, directory, user, environment = unpack_program(os.pread(file, os.fstat(file).st_size, 0))
                subject = b"user " + user
                self._become(os.fsdecode(user), environment)
                subject = directory
                os.chdir(directory)
                subject = argv[0]
                os.closerange(_FIRST_DESCRIPTOR_OF_OURS, os.sysconf("SC_OPEN_MAX"))
                os.execvpe(subject, argv, {**os.environb, **environment})
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in (errno.ENOENT, errno.ENOTDIR):
                exit_code = _NOT_FOUND
            reason = str(error) if number is None else os.strerror(number)
            os.write(2, subject + os.fsencode(f": {reason}\n"))
        finally:
            os._exit(exit_code)

    def _confine(self) -> OSError | None:
        """Do what does not depend on the request; return the error that prevents the execution of a program."""
        try:
            os.setsid()
            # Python ignores it; the spawner has restored the others.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            lower_priority()
            if self._confinement.ruleset is not None:
                landlock_domain.enter(self._confinement.ruleset)
        except OSError as error:
            return error
        return None

    def _become(self, name: str, environment: dict[bytes, bytes]) -> None:
        """Become a user of the session, and give it its home directory unless the program has one.

        Args:
            name: Name or id of the user, and perhaps that of the group behind a colon; that of the confinement if empty.
            environment: Environment variables of the program.

        Raises:
            ValueError: If there is no such user or group.
        """
        ids = self._confinement.user
        if name:
            account = find_account(name)
            ids = (account.user, account.group, *account.groups)
            environment.setdefault(b"HOME", os.fsencode(account.home))
        if ids:
            user, group, *groups = ids
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)


def _start(request: bytes, control: int, streams: list[int]) -> None:
    """Report the start, and install the standard streams and the controlling terminal; exit if no terminal can be opened."""
    kind, size = request[:1], request[1:]
    started = REPORT.pack(STARTED, os.getpid())
    if kind == WITH_OWN_TERMINAL:
        try:
            controller, terminal = open_terminal(*TERMINAL_SIZE.unpack(size))
        except OSError as error:
            os.write(control, REPORT.pack(FAILED, error.errno or 0))
            os._exit(1)
        socket.send_fds(socket.socket(fileno=control), [started], [controller])
        streams = [terminal] * 3
    else:
        os.write(control, started)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    if kind != WITH_STREAMS:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
