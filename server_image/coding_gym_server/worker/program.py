"""Program: what a client runs in a session beside the worker, with the rights of the worker."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import termios

import msgspec

from coding_gym_server.ipc.program_messages import ForkProgram, ProgramSpec
from coding_gym_server.isolation.profile import IsolationProfile

__all__ = ["Program"]

_CANNOT_EXECUTE = 126
_NOT_FOUND = 127
_FIXED_SIGNALS = {signal.SIGKILL, signal.SIGSTOP}
_FIRST_DESCRIPTOR_OF_OURS = 3


class Program:
    """Replaces a process that was forked from a session root by a program.

    Args:
        request: The program.
        descriptors: Its stdin, stdout and stderr, and the file with its ``ProgramSpec``.
        profile: The isolation profile of the session.
        prepared: The Landlock ruleset from ``IsolationProfile.prepare_workers``, or None.
    """

    def __init__(
        self, request: ForkProgram, descriptors: list[int], *, profile: IsolationProfile, prepared: int | None
    ) -> None:
        self._request = request
        *self._streams, self._spec = descriptors
        self._profile = profile
        self._prepared = prepared

    def run(self) -> None:
        """Execute the program. On failure, the exit code and a line on stderr tell why, as a shell does."""
        exit_code = _CANNOT_EXECUTE
        subject = "the sandbox"
        try:
            self._set_up()
            spec = self._read_spec()
            subject = spec.directory
            os.chdir(spec.directory)
            subject = spec.argv[0]
            os.closerange(_FIRST_DESCRIPTOR_OF_OURS, os.sysconf("SC_OPEN_MAX"))
            os.execvpe(subject, spec.argv, {**os.environ, **spec.environment})
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in (errno.ENOENT, errno.ENOTDIR):
                exit_code = _NOT_FOUND
            os.write(2, os.fsencode(f"{subject}: {error if number is None else os.strerror(number)}\n"))
        finally:
            os._exit(exit_code)

    def _read_spec(self) -> ProgramSpec:
        with open(self._spec, "rb") as file:
            file.seek(0)
            return msgspec.msgpack.decode(file.read(), type=ProgramSpec)

    def _set_up(self) -> None:
        os.setsid()
        for number, descriptor in enumerate(self._streams):
            os.dup2(descriptor, number)
        if self._request.has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in signal.valid_signals() - _FIXED_SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        self._profile.apply_to_worker(self._prepared)
