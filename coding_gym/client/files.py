"""The files of a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO
from urllib.parse import quote, urlencode

from coding_gym.client.http import HttpClient

__all__ = ["FileEntry", "Files"]

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileEntry:
    """One entry of a directory.

    Attributes:
        name: File name.
        type: ``file`` or ``dir``.
        size: Size in bytes, None for a directory.
        modified: Modification time in seconds since the epoch.
    """

    name: str
    type: str
    size: int | None
    modified: float


class Files:
    """Access to the workspace; paths are relative to it, or begin with ``/home/user``.

    All methods raise ``FileNotFoundError`` if a path does not exist, ``ProtocolError`` if the server refuses it, and
    ``TransportError`` if the server does not respond.

    Args:
        http: The server.
        base: Path of the routes.
    """

    def __init__(self, http: HttpClient, base: str = "/files") -> None:
        self._http = http
        self._base = base

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        with self._http.request("GET", self._url(path), missing=path) as response:
            return response.read()

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Return the content of a file as text."""
        return self.read(path).decode(encoding)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a large file in chunks of 1 MiB."""
        with self._http.request("GET", self._url(path), missing=path) as response:
            while chunk := response.read(_CHUNK_BYTES):
                yield chunk

    def write(self, path: str, content: str | bytes | IO[bytes]) -> None:
        """Write a file, replacing an existing one; missing directories are created.

        Args:
            path: Path of the file.
            content: Text, bytes, or an open binary file, which is sent in chunks.
        """
        body = content.encode() if isinstance(content, str) else content
        with self._http.request("PUT", self._url(path), body=body) as response:
            response.read()

    def list(self, path: str = ".") -> list[FileEntry]:
        """Return the entries of a directory: directories first, then files, each sorted by name."""
        with self._http.request("GET", f"{self._base}?{urlencode({'path': path})}", missing=path) as response:
            return [FileEntry(**entry) for entry in self._http.json(response)["entries"]]

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents."""
        with self._http.request("DELETE", self._url(path), missing=path) as response:
            response.read()


def _url(path: str) -> str:
    return f"/files/{quote(path, safe='/')}"
