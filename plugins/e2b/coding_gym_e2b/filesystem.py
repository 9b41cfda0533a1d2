"""envd's service ``filesystem.Filesystem``: the files of an E2B sandbox, which are those of its session."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from coding_gym_e2b.connect_protocol import Message
from coding_gym_e2b.failures import Code, RpcError
from coding_gym_e2b.files import SessionFiles
from coding_gym_e2b.filesystem_messages import ListRequest, MoveRequest, PathRequest, WatcherRequest, WatchRequest

__all__ = ["FilesystemService"]

_KEEPALIVE_SECONDS = 30.0


class FilesystemService:
    """The procedures for files.

    Args:
        files: The files of the session.
        user: User that they are for; empty for that of the session.
    """

    def __init__(self, files: SessionFiles, user: str = "") -> None:
        self._files = files
        self._user = user

    async def stat(self, request: PathRequest) -> Message:
        """Return the entry at a path."""
        return await self._files.call("stat_path", user=self._user, path=request.path)

    async def make_directory(self, request: PathRequest) -> Message:
        """Make a directory, and those above it."""
        return await self._files.call("make_directory", user=self._user, path=request.path)

    async def move(self, request: MoveRequest) -> Message:
        """Move a file or a directory."""
        return await self._files.call("move", user=self._user, source=request.source, destination=request.destination)

    async def list_directory(self, request: ListRequest) -> Message:
        """Return the entries of a directory."""
        return await self._files.call("list_directory", user=self._user, path=request.path, depth=request.depth)

    async def remove(self, request: PathRequest) -> Message:
        """Remove a file or a directory, if it exists."""
        return await self._files.call("remove", user=self._user, path=request.path)

    async def watch(self, request: WatchRequest) -> AsyncGenerator[Message, None]:
        """Yield what happens in a directory."""
        number = await self._watch(request)
        try:
            yield {"start": {}}
            while True:
                if not await self._files.wait_for_events(number, _KEEPALIVE_SECONDS):
                    yield {"keepalive": {}}
                for event in await self._files.take_events(number):
                    yield {"filesystem": event}
        finally:
            await self._files.unwatch(number)

    async def create_watcher(self, request: WatchRequest) -> Message:
        """Begin to collect what happens in a directory."""
        number = await self._watch(request)
        return {"watcherId": str(number)}

    async def watcher_events(self, request: WatcherRequest) -> Message:
        """Return what has happened in a directory since the last call."""
        return {"events": await self._files.take_events(_number(request))}

    async def remove_watcher(self, request: WatcherRequest) -> Message:
        """End the collection."""
        await self._files.unwatch(_number(request))
        return {}

    async def _watch(self, request: WatchRequest) -> int:
        return await self._files.watch(
            request.path, recursive=request.recursive, include_entry=request.include_entry, user=self._user
        )


def _number(request: WatcherRequest) -> int:
    text = request.watcher_id
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise RpcError(Code.NOT_FOUND, "watcher not found")
    return int(text)
