"""Files of one session, in which further interpreters of its client run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.ipc.system_messages import JoinSystem, ShareSystem
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.shared_files import SharedMounts
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.workspace.session_directory import MountedDirectory

__all__ = ["FilesOfSession"]


class FilesOfSession(SharedMounts):
    """User, mounts and file system of a session during an episode, whose processes are in other namespaces.

    Args:
        find: Returns the executor of the episode.
    """

    is_lasting = False

    def __init__(self, find: Callable[[], Awaitable[Executor]]) -> None:
        super().__init__()
        self._find = find

    async def _open(self) -> tuple[MountedDirectory, list[int]]:
        executor = await self._find()
        response, namespaces = await executor.tree.call_for_descriptors(ShareSystem(executor.slot))
        if isinstance(response, Failed):
            raise ForkError(response.reason)
        if len(namespaces) != JoinSystem.DESCRIPTORS:
            close_all(namespaces)
            message = "the server has no free file descriptor"
            raise ForkError(message)
        assert isinstance(executor.directory, MountedDirectory)
        self.user = executor.user
        return executor.directory, namespaces
