"""``SlotInit``: first process of the pid namespace of a slot, without which the kernel ends all others."""

from __future__ import annotations

import os
import select
from typing import NoReturn

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import Kill, Killed, ToProcess
from coding_gym_server.isolation import capabilities, seccomp
from coding_gym_server.linux import user_namespaces
from coding_gym_server.linux.process_root import ProcessRoot
from coding_gym_server.linux.sigchld import ChildExits

__all__ = ["SlotInit"]


class SlotInit(ProcessRoot):
    """Adopts the orphans of a fork, and kills its processes at once on request. It runs no code of a session.

    Args:
        channel: Channel of the session root's requests.
    """

    def __init__(self, channel: Channel[ToProcess]) -> None:
        super().__init__(scopes_signals=False, adopted_by_init=False)
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
                self._reap()
            if self._channel.fileno() in ready:
                self._handle_request()

    def _handle_request(self) -> None:
        try:
            request = self._channel.receive()
        except (EOFError, ConnectionError):
            os._exit(0)
        assert isinstance(request, Kill)
        # It waits for none of them: an init below this one ends only when the root has reaped what was there.
        self._kill()
        self._channel.send(Killed())
