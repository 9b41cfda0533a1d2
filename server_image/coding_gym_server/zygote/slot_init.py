"""``SlotInit``: first process of the pid namespace of a slot, without which the kernel ends all others."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import NoReturn

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import Kill, Killed, ToProcess
from coding_gym_server.isolation import capabilities, seccomp
from coding_gym_server.linux import user_namespaces
from coding_gym_server.linux.sigchld import ChildExits

__all__ = ["SlotInit"]


class SlotInit:
    """Adopts the orphans of a fork, and kills its processes at once on request. It runs no code of a session.

    Args:
        channel: Channel of the session root's requests.
    """

    def __init__(self, channel: Channel[ToProcess]) -> None:
        self._channel = channel

    def run(self, *, is_filtered: bool) -> NoReturn:
        """Serve until the root closes the channel; all processes of the slot end then.

        Args:
            is_filtered: Whether sessions have a seccomp filter.
        """
        capabilities.drop_all()
        user_namespaces.forbid_inspection()
        if is_filtered:
            seccomp.install()
        exits = ChildExits()
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if exits.fileno() in ready:
                exits.clear()
                _reap()
            if self._channel.fileno() in ready:
                try:
                    request = self._channel.receive()
                except (EOFError, ConnectionError):
                    os._exit(0)
                assert isinstance(request, Kill)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
                # Not those that have not ended yet: an init below this one would wait for what the root has to reap.
                _reap()
                self._channel.send(Killed())


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
