"""Process that makes the namespaces of a fork's slot, and exits."""

from __future__ import annotations

import os
import socket

from coding_gym_server.ipc.channel import Channel, close_others
from coding_gym_server.ipc.messages import Failed, ToProcess
from coding_gym_server.ipc.snapshot_messages import SlotMade
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.zygote.slot_init import SlotInit

__all__ = ["SlotMaker"]


class SlotMaker:
    """Makes the namespaces of one slot. It has the privileges of a zygote and runs no code of a session.

    Args:
        profile: Isolation profile of the sessions.
        number: Number of the slot.
        connection: Socket of the response.
        user_namespace: User namespace of the process that is to join.
        mount_namespace: Mount namespace of the session.
        pid_namespace: Pid namespace of the session.
        slots: Parent directory of the directories of forks.
    """

    def __init__(
        self,
        profile: IsolationProfile,
        number: int,
        connection: int,
        user_namespace: int,
        mount_namespace: int,
        pid_namespace: int,
        slots: int,
    ) -> None:
        assert profile.users is not None
        self._users = profile.users
        self._is_filtered = profile.seccomp
        self._number = number
        self._channel: Channel[ToProcess] = Channel(socket.socket(fileno=connection))
        self._user_namespace = user_namespace
        self._mount_namespace = mount_namespace
        self._pid_namespace = pid_namespace
        self._slots = slots

    def run(self) -> None:
        """Fork the init of the slot, which responds, and exit."""
        try:
            namespaces = session_user.enter_slot(
                self._users,
                self._slots,
                self._number,
                user_namespace=self._user_namespace,
                mount_namespace=self._mount_namespace,
                pid_namespace=self._pid_namespace,
            )
            if namespaces is None:
                return
            own = os.pidfd_open(os.getpid())
            self._channel.send(SlotMade(), (own, *namespaces))
            close_others([self._channel.fileno()])
            SlotInit(self._channel).run(is_filtered=self._is_filtered)
        except OSError as error:
            self._channel.send(Failed(f"the kernel does not permit forks of a session beside it: {error}"))
        finally:
            os._exit(0)
