"""The executors of a session and its forks, whose processes have one root."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import FromProcess, ToProcess, WorkerExited
from coding_gym_server.linux import procfs
from coding_gym_server.protocol import MAX_FORKS
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker
from coding_gym_server.server.supervisor.spawner_handle import ROOT_TIMEOUT_SECONDS
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["ProcessTree"]


class RootListener(Protocol):
    """Executor of a process tree."""

    def on_worker_exited(self) -> None:
        """Called when its worker exits."""

    def on_root_closed(self) -> None:
        """Called when the root, and all processes with it, have ended."""


class ProcessTree:
    """The executors of a session and its forks.

    Args:
        connection: Our end of the root's channel.
        system: User and files of the session.

    Attributes:
        root: Channel to the root.
        root_pid: Its process id, 0 before it is known.
        is_broken: Whether the root has died, and all processes with it.
        directory: Files of the session that the root was forked for, None before it has any, and when it has been closed.
        members: The executors by slot.
        frozen: Frozen copies of their workers.
        ending: Preparations of spares by frozen copies that have been released, and end with them.
    """

    def __init__(self, connection: socket.socket, system: SessionSystem) -> None:
        self.root: AsyncChannel[FromProcess] = AsyncChannel(
            connection, on_message=self._on_message, on_descriptors=system.on_descriptors, on_closed=self._on_closed
        )
        self.root_pid = 0
        self.is_broken = False
        self.directory: SessionDirectory | None = None
        self.members: dict[int, RootListener] = {}
        self.frozen: set[FrozenWorker] = set()
        self.ending: set[asyncio.Task[None]] = set()
        self._system = system
        # Descriptors are received apart from the responses that they belong to.
        self._receiving = asyncio.Lock()

    @property
    def is_alone(self) -> bool:
        """Whether there are neither forks nor frozen copies."""
        return not self.frozen and len(self.members) == 1

    def free_slot(self) -> int | None:
        """Return the number of a free slot, None if there is none."""
        return next((number for number in range(1, MAX_FORKS + 1) if number not in self.members), None)

    def pid_outside(self, own_pid: int) -> int:
        """Return the process id of a child of the root, given that in the root's pid namespace; 0 if it has been reaped."""
        return procfs.pid_outside(self.root_pid, own_pid)

    def pid_inside(self, pid: int) -> int:
        """Return the process id of a process of the sandbox in the root's pid namespace, 0 if it has none there."""
        return procfs.pid_in(self.root_pid, pid)

    async def call_for_descriptors(self, request: ToProcess) -> tuple[FromProcess, list[int]]:
        """Send a request to the root; return its response, and the descriptors passed with it, which the caller closes.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        async with self._receiving:
            response = await self.call_root(request)
            return response, self._system.take_descriptors()

    async def call_root(self, request: ToProcess, descriptors: tuple[int, ...] = ()) -> FromProcess:
        """Send a request to the root; return its response.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        return await self.root.call(request, descriptors, timeout=ROOT_TIMEOUT_SECONDS)

    def tell_root(self, request: ToProcess) -> None:
        """Send a request to the root, if it is alive, without waiting for its response."""
        with contextlib.suppress(ChannelClosedError):
            self.root.send(request)
            self.root.expect()

    async def settle(self) -> None:
        """Wait until the root knows all processes that frozen copies have forked before they were released."""
        if self.ending:
            await asyncio.wait([*self.ending])

    def close(self) -> None:
        """Close the channel; the root then kills all processes."""
        self.is_broken = True
        # A file system in memory is freed with the last reference.
        self.directory = None
        while self.frozen:
            self.frozen.pop().close()
        self.root.close()

    def _on_message(self, message: FromProcess) -> None:
        # Reported by the worker's parent, because children of the worker may keep its channel open.
        if isinstance(message, WorkerExited) and (member := self.members.get(message.slot)) is not None:
            member.on_worker_exited()

    def _on_closed(self) -> None:
        self.is_broken = True
        for member in [*self.members.values()]:
            member.on_root_closed()
