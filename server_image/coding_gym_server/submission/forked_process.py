"""Base of the processes that hold submissions: forked for one submission or one test, and killed with it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from abc import ABC, abstractmethod

from coding_gym_server.ipc.streams import adopt_descriptors, flush_streams
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux.inherited_state import renew_inherited_state
from coding_gym_server.workspace.layout import Layout

__all__ = ["ForkedProcess"]

_HIGH_DESCRIPTOR = 200


class ForkedProcess(ABC):
    """Process that serves requests until it is killed. Created before the fork, with the state that all of them share.

    Args:
        layout: Paths of its directories.
        profile: The isolation profile.
        prepared: The part of the profile that the root has prepared.
    """

    def __init__(self, layout: Layout, *, profile: IsolationProfile, prepared: int | None) -> None:
        self._layout = layout
        self._profile = profile
        self._prepared = prepared
        self._descriptors = (0, 1, 2)

    @abstractmethod
    def prepare(self) -> None:
        """Set up the state that all of them share, in the process that they are forked from."""

    @abstractmethod
    def _serve(self, connection: socket.socket) -> None:
        """Serve requests until the other side is gone."""

    def adopt(self, connection: int, stdout: int, stderr: int) -> None:
        """Set the descriptors of this process: the connection that it serves, and the output streams."""
        self._descriptors = connection, stdout, stderr

    def run(self) -> None:
        """Serve requests until they end, then wait to be killed: the root ends all processes of a submission."""
        try:
            self._serve(self._set_up())
            while True:
                signal.pause()
        finally:
            flush_streams()
            os._exit(1)

    def _set_up(self) -> socket.socket:
        """Set up the forked process; return its connection, out of the way of the programs' own descriptors."""
        os.setsid()
        # As in any Python program; the zygote ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        renew_inherited_state()
        descriptor, *outputs = self._descriptors
        adopt_descriptors(*outputs)
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
        os.close(descriptor)
        self._profile.apply_to_worker(self._prepared)
        os.chdir(self._layout.work)
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, moved)
