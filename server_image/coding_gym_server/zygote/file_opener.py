"""Process that opens files and sockets for the server, forked from a session root, with the rights of the session's programs.

The files of an image are those of many users, and in mounts of the session, and the ports are those of the session's network:
the server has no access to them.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from coding_gym_server.ipc.channel import Channel, close_others
from coding_gym_server.linux import user_namespaces
from coding_gym_server.linux.accounts import Account
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.workspace import files
from coding_gym_server.workspace.file_errors import FilesError, NotFoundError, StorageError, outside_error
from coding_gym_server.workspace.file_messages import (
    Done,
    Entries,
    FileRequest,
    FileResponse,
    Finish,
    List,
    Listen,
    Open,
    Opened,
    Refused,
    Remove,
    Upload,
)

__all__ = ["FileOpener"]

_BACKLOG = 128
_STANDARD_STREAMS = (0, 1, 2)
_requests = msgspec.msgpack.Decoder(FileRequest)


class FileOpener:
    """Serves requests until the server closes their socket.

    Args:
        connection: Descriptor of the socket.
        directory: The working directory, which relative paths begin in.
        account: User of programs; None for that of the calling process.
    """

    def __init__(self, connection: int, *, directory: str, account: Account | None) -> None:
        self._connection = connection
        self._directory = directory
        self._account = account
        self._files = files.Workspace(Path("/"), home="/")
        self._upload: files.Upload | None = None
        self._opened = -1

    def run(self) -> None:
        """Serve."""
        # It has the memory of the root, which programs may not read.
        user_namespaces.forbid_inspection()
        close_others((self._connection, *_STANDARD_STREAMS))
        lower_priority()
        os.umask(0o022)
        if self._account is not None:
            os.setgroups(self._account.groups)
            os.setresgid(*[self._account.group] * 3)
            os.setresuid(*[self._account.user] * 3)
            # The change of the user has undone it.
            user_namespaces.forbid_inspection()
        channel = Channel(socket.socket(fileno=self._connection), _requests)
        try:
            while True:
                channel.send(*self._respond(channel.receive()))
        except (EOFError, ConnectionError):
            self._discard()
        os._exit(0)

    def _respond(self, request: FileRequest) -> tuple[FileResponse, tuple[int, ...]]:
        """Return the response to a request, and descriptors to pass, which are valid until the next one."""
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1
        try:
            return self._handle(request)
        except NotFoundError as error:
            return Refused(str(error), is_missing=True), ()
        except FilesError as error:
            return Refused(str(error), is_storage=isinstance(error, StorageError)), ()

    def _handle(self, request: FileRequest) -> tuple[FileResponse, tuple[int, ...]]:
        match request:
            case List(path):
                return Entries(self._files.list(self._absolute(path))), ()
            case Open(path):
                self._opened = self._files.open(self._absolute(path))
                return Opened(), (self._opened,)
            case Upload(path, is_executable):
                self._discard()
                self._upload = self._files.upload(self._absolute(path), is_executable=is_executable)
                return Opened(self._upload.is_new), (self._upload.fileno(),)
            case Finish():
                if self._upload is not None:
                    self._upload.finish()
                    self._discard()
            case Listen(port):
                self._opened = _listen(port)
                return Opened(), (self._opened,)
            case Remove(path):
                absolute = self._absolute(path)
                if self._directory == absolute:
                    message = f"{path} is the working directory"
                    raise FilesError(message)
                self._files.remove(absolute)
        return Done(), ()

    def _absolute(self, path: str) -> str:
        if "\0" in path:
            raise outside_error(path)
        return os.path.normpath(os.path.join(self._directory, path))

    def _discard(self) -> None:
        """Close the upload, and discard it unless it is finished."""
        if self._upload is not None:
            self._upload.close()
            self._upload = None


def _listen(port: int) -> int:
    """Return the descriptor of a socket that listens at a port of the loopback interface.

    Raises:
        StorageError: If it cannot.
    """
    listener = socket.socket()
    try:
        # A connection of an earlier episode may still be in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        message = f"nothing can listen at port {port} of the session: {error.strerror}"
        raise StorageError(message) from error
    return listener.detach()
