"""Files of a session that a process of it opens for the server."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Sequence

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.workspace import file_messages as messages
from coding_gym_server.workspace.file_errors import FilesError, NotFoundError, StorageError
from coding_gym_server.workspace.file_messages import Entries, FileRequest, FileResponse, Opened, Refused
from coding_gym_server.workspace.files import DirectoryEntry, write_all

__all__ = ["LentUpload", "LentWorkspace"]

_TIMEOUT_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 64 << 20

_responses = msgspec.msgpack.Decoder(FileResponse)


class LentWorkspace:
    """Files as a session's programs see them, like ``Workspace``.

    Programs of the session can end the process that opens the files: then requests fail.

    Args:
        connection: Socket that is connected with it. The workspace takes ownership of it.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_TIMEOUT_SECONDS)
        self._channel = Channel(connection, _responses, max_bytes=_MAX_RESPONSE_BYTES)

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory, as ``Workspace.list`` does."""
        response, _ = self._call(messages.List(path), path)
        if not isinstance(response, Entries):
            raise _failure(path)
        return response.entries

    def open(self, path: str) -> int:
        """Return a descriptor for reading a file, as ``Workspace.open`` does."""
        return self._open(messages.Open(path), path)[1]

    def upload(self, path: str, *, is_executable: bool = False) -> LentUpload:
        """Start writing a file, as ``Workspace.upload`` does."""
        response, descriptor = self._open(messages.Upload(path, is_executable), path)
        return LentUpload(descriptor, path, is_new=response.is_new, finish=lambda: self._call(messages.Finish(), path))

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with its content, as ``Workspace.remove`` does."""
        self._call(messages.Remove(path), path)

    def listen(self, port: int) -> socket.socket:
        """Return a socket that listens at a TCP port of the session's loopback interface.

        Raises:
            FilesError: If it cannot.
        """
        name = f"port {port}"
        response, descriptors = self._call(messages.Listen(port), name)
        if isinstance(response, Opened) and descriptors and stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
            return socket.socket(fileno=descriptors[0])
        close_all(descriptors)
        raise _failure(name)

    def close(self) -> None:
        """End the process."""
        self._channel.close()

    def _open(self, request: FileRequest, path: str) -> tuple[Opened, int]:
        """Return the response to a request for a file, and its descriptor."""
        response, descriptors = self._call(request, path)
        # Reads and writes of anything else may block.
        if isinstance(response, Opened) and descriptors and stat.S_ISREG(os.fstat(descriptors[0]).st_mode):
            return response, descriptors[0]
        close_all(descriptors)
        raise _failure(path)

    def _call(self, request: FileRequest, path: str) -> tuple[FileResponse, Sequence[int]]:
        """Return the response to a request, and the descriptors that it passes.

        Raises:
            NotFoundError: If the path does not exist.
            FilesError: If the request cannot be fulfilled.
        """
        try:
            self._channel.send(request)
            response, descriptors = self._channel.receive_with_descriptors()
        except (OSError, EOFError, *DECODING_ERRORS) as error:
            raise _failure(path) from error
        if isinstance(response, Refused):
            if response.is_missing:
                raise NotFoundError(path)
            raise (StorageError if response.is_storage else FilesError)(response.reason)
        return response, descriptors


def _failure(path: str) -> StorageError:
    return StorageError(f"The process that opens the session's files has failed: {path}")


class LentUpload:
    """Atomic write of a file, like ``Upload``.

    Args:
        descriptor: The file. The upload takes ownership of it.
        path: The client's path, for messages.
        is_new: Whether the file did not exist before.
        finish: Moves the complete file to its path.

    Attributes:
        is_new: The same.
    """

    def __init__(self, descriptor: int, path: str, *, is_new: bool, finish: Callable[[], object]) -> None:
        self.is_new = is_new
        self._descriptor = descriptor
        self._path = path
        self._finish = finish

    def write(self, data: bytes) -> None:
        """Append data, as ``Upload.write`` does."""
        write_all(self._descriptor, data, self._path)

    def finish(self) -> None:
        """Move the complete file to its path, as ``Upload.finish`` does."""
        self._finish()

    def close(self) -> None:
        """Close the file, which is discarded unless it is finished, with the end of the process at the latest. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
