"""Program: what a client runs in a session beside the worker, with the rights of the worker."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import termios

from coding_gym_server.ipc.messages import ForkProgram
from coding_gym_server.isolation.profile import IsolationProfile

__all__ = ["Program"]

_CANNOT_EXECUTE = 126
_NOT_FOUND = 127
_IGNORED_BY_PYTHON = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
_FIRST_DESCRIPTOR_OF_OURS = 3


class Program:
    """Replaces a process that was forked from a session root by a program.

    Args:
        request: The program.
        descriptors: Its stdin, stdout and stderr.
        profile: The isolation profile of the session.
        prepared: The Landlock ruleset from ``IsolationProfile.prepare_workers``, or None.
    """

    def __init__(
        self, request: ForkProgram, descriptors: list[int], *, profile: IsolationProfile, prepared: int | None
    ) -> None:
        self._request = request
        self._descriptors = descriptors
        self._profile = profile
        self._prepared = prepared

    def run(self) -> None:
        """Execute the program. On failure, the exit code and a line on stderr tell why, as a shell does."""
        exit_code = _CANNOT_EXECUTE
        subject = self._request.directory
        try:
            self._set_up()
            os.chdir(self._request.directory)
            subject = self._request.argv[0]
            environment = {**os.environ, **self._request.environment}
            os.closerange(_FIRST_DESCRIPTOR_OF_OURS, os.sysconf("SC_OPEN_MAX"))
            os.execvpe(subject, self._request.argv, environment)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                exit_code = _NOT_FOUND
            os.write(2, os.fsencode(f"{subject}: {error.strerror}\n"))
        finally:
            os._exit(exit_code)

    def _set_up(self) -> None:
        os.setsid()
        for number, descriptor in enumerate(self._descriptors):
            os.dup2(descriptor, number)
        if self._request.has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        self._profile.apply_to_worker(self._prepared)
