"""Process that makes the namespaces of a fork's slot, and exits."""

from __future__ import annotations

import os
import socket

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import Failed, ToProcess
from coding_gym_server.ipc.snapshot_messages import SlotMade
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.session_user import SessionUsers
from coding_gym_server.linux import mounts
from coding_gym_server.linux.forking import fork_bare
from coding_gym_server.workspace.layout import MOUNTED

__all__ = ["SlotMaker"]


class SlotMaker:
    """Makes the namespaces of one slot. It has the privileges of a zygote and runs no code of a session.

    Args:
        users: Users and disks of the sandbox.
        number: Number of the slot.
        connection: Socket of the response.
        user_namespace: User namespace of the process that is to join.
        mount_namespace: Mount namespace of the session.
        pid_namespace: Pid namespace of the session.
        slots: Parent directory of the directories of forks.
    """

    def __init__(
        self,
        users: SessionUsers,
        number: int,
        connection: int,
        user_namespace: int,
        mount_namespace: int,
        pid_namespace: int,
        slots: int,
    ) -> None:
        self._users = users
        self._number = number
        self._channel: Channel[ToProcess] = Channel(socket.socket(fileno=connection))
        self._user_namespace = user_namespace
        self._mount_namespace = mount_namespace
        self._pid_namespace = pid_namespace
        self._slots = slots

    def run(self) -> None:
        """Respond, and exit."""
        try:
            # Its children are in the pid namespace of the session.
            mounts.join(self._pid_namespace, mounts.NEW_PROCESSES)
            helper = fork_bare()
            if helper:
                os.waitpid(helper, 0)
                return
            namespaces = session_user.enter_slot(
                self._users, MOUNTED, self._slots, self._number, self._user_namespace, self._mount_namespace
            )
            self._channel.send(SlotMade(), namespaces)
        except OSError as error:
            self._channel.send(Failed(f"the kernel does not permit forks of a session beside it: {error}"))
        finally:
            os._exit(0)
