"""The files of a workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote, urlencode

from coding_gym.client.http import HttpClient
from coding_gym.errors import ProtocolError

__all__ = ["FileEntry", "Files"]

_CHUNK_BYTES = 1 << 20
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class FileEntry:
    """One entry of a directory.

    Attributes:
        name: File name.
        type: ``file`` or ``dir``.
        size: Size in bytes, None for a directory.
        modified: Modification time in seconds since the epoch.
        is_link: Whether it is a symbolic link; the other attributes are those of its target.
    """

    name: str
    type: str
    size: int | None
    modified: float
    is_link: bool = False


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

    def upload(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a file, or a directory with its contents, from this machine into the workspace.

        Args:
            source: The file or directory on this machine. Symbolic links in a directory are followed.
            path: Path of the copy.

        Raises:
            FileNotFoundError: If ``source`` does not exist.
        """
        source = Path(source)
        if not source.is_dir():
            with source.open("rb") as file:
                self.write(path, file)
            return
        for parent, _, names in os.walk(source, followlinks=True):
            for name in names:
                file_path = Path(parent, name)
                with file_path.open("rb") as file:
                    self.write(str(PurePosixPath(path, *file_path.relative_to(source).parts)), file)

    def download(self, path: str, target: str | os.PathLike[str], *, max_bytes: int = _MAX_BYTES) -> None:
        """Copy a file, or a directory with its contents, from the workspace to this machine.

        Links to files become copies; links to directories, which may form loops, are left out.

        Args:
            path: Path of the file or directory.
            target: Path of the copy. Missing directories are created.
            max_bytes: Maximum size of all files together: a file of a few bytes on the disk can have any size.

        Raises:
            ProtocolError: If the files are larger than ``max_bytes``; the copy is then incomplete.
        """
        self._download(path, Path(target), max_bytes)

    def _download(self, path: str, target: Path, max_bytes: int) -> int:
        """Copy a file or directory; return what remains of ``max_bytes``."""
        try:
            entries = self.list(path)
        except ProtocolError:
            # Not a directory.
            return self._download_file(path, target, max_bytes)
        target.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            # The server is not trusted: other names would lead out of the target.
            if entry.name in ("", ".", "..") or "/" in entry.name or "\0" in entry.name:
                message = f"The server listed a file with the name {entry.name!r}"
                raise ProtocolError(message)
            if entry.type == "file":
                max_bytes = self._download_file(f"{path}/{entry.name}", target / entry.name, max_bytes)
            elif not entry.is_link:
                max_bytes = self._download(f"{path}/{entry.name}", target / entry.name, max_bytes)
        return max_bytes

    def _download_file(self, path: str, target: Path, max_bytes: int) -> int:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for chunk in self.read_chunks(path):
                max_bytes -= len(chunk)
                if max_bytes < 0:
                    message = f"{path} exceeds max_bytes= of the download: raise it"
                    raise ProtocolError(message)
                file.write(chunk)
        return max_bytes

    def _url(self, path: str) -> str:
        return f"{self._base}/{quote(path, safe='/')}"
