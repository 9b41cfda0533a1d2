"""The files of a workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote, urlencode

from coding_gym.client.http import HttpClient
from coding_gym.errors import ConfigurationError, ProtocolError

__all__ = ["FileEntry", "Files"]

_CHUNK_BYTES = 1 << 20
_MAX_BYTES = 1 << 30
_EXECUTABLE, _READABLE = 0o111, 0o444


@dataclass(frozen=True)
class FileEntry:
    """One entry of a directory.

    Attributes:
        name: File name.
        type: ``file`` or ``dir``.
        size: Size in bytes, None for a directory.
        modified: Modification time in seconds since the epoch.
        is_link: Whether it is a symbolic link; the other attributes are those of its target.
        is_executable: Whether it is an executable file.
    """

    name: str
    type: str
    size: int | None
    modified: float
    is_link: bool = False
    is_executable: bool = False


class Files:
    """Access to the workspace; paths are relative to it, or begin with ``/home/user``.

    Where programs are root or those of another image than the default one, paths may be any that they can use, and are relative
    to their working directory.

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
        """Write a file; missing directories are created. An existing file is replaced, and keeps its permissions.

        Args:
            path: Path of the file.
            content: Text, bytes, or an open binary file, which is sent in chunks.

        Raises:
            ConfigurationError: If an argument has another type.
        """
        url = self._url(path)
        if not (isinstance(content, str | bytes) or hasattr(content, "read")):
            message = f"Expected the content of {path!r} to be str, bytes or an open binary file, got {content!r:.200}"
            raise ConfigurationError(message)
        self._put(url, content.encode() if isinstance(content, str) else content)

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

        Executable files stay executable.

        Args:
            source: The file or directory on this machine. Symbolic links in a directory are followed.
            path: Path of the copy.

        Raises:
            FileNotFoundError: If ``source`` does not exist.
        """
        source = Path(source)
        if not source.is_dir():
            self._upload_file(source, path)
            return
        for parent, _, names in os.walk(source, followlinks=True):
            for name in names:
                file = Path(parent, name)
                self._upload_file(file, str(PurePosixPath(path, *file.relative_to(source).parts)))

    def download(self, path: str, target: str | os.PathLike[str], *, max_bytes: int = _MAX_BYTES) -> dict[str, str]:
        """Copy a file, or a directory with its contents, from the workspace to this machine.

        Executable files stay executable. Links to files become copies; links to directories, which may form loops, are left
        out. What else cannot be read in a directory is left out and returned.

        Args:
            path: Path of the file or directory.
            target: Path of the copy. Missing directories are created.
            max_bytes: Maximum size of all files together: a file of a few bytes on the disk can have any size.

        Returns:
            What could not be read in a directory, such as pipes and links that lead out of the workspace: the reasons by path.

        Raises:
            FileNotFoundError: If ``path`` does not exist.
            ProtocolError: If ``path`` cannot be read, or the files are larger than ``max_bytes``; the copy is then incomplete.
        """
        try:
            pending = [(path, Path(target), self.list(path))]
        except ProtocolError:
            # Not a directory.
            chunks = self._open(path)
            self._save(path, chunks, Path(target), max_bytes, is_executable=self._is_executable(path))
            return {}
        unreadable: dict[str, str] = {}
        while pending:
            path, copy, entries = pending.pop()
            copy.mkdir(parents=True, exist_ok=True)
            for entry in entries:
                inner, inner_copy = f"{path}/{entry.name}", copy / _checked_name(entry)
                try:
                    if entry.type == "file":
                        chunks = self._open(inner)
                    elif entry.is_link:
                        continue
                    else:
                        pending.append((inner, inner_copy, self.list(inner)))
                        continue
                except (ProtocolError, FileNotFoundError) as error:
                    unreadable[inner] = str(error)
                    continue
                max_bytes = self._save(inner, chunks, inner_copy, max_bytes, is_executable=entry.is_executable)
        return unreadable

    def _upload_file(self, source: Path, path: str) -> None:
        with source.open("rb") as file:
            is_executable = os.fstat(file.fileno()).st_mode & _EXECUTABLE
            self._put(f"{self._url(path)}?executable=true" if is_executable else self._url(path), file)

    def _put(self, url: str, body: bytes | IO[bytes]) -> None:
        with self._http.request("PUT", url, body=body) as response:
            response.read()

    def _open(self, path: str) -> Iterator[bytes]:
        """Return the chunks of a file, which can be read."""
        chunks = self.read_chunks(path)
        return chain([next(chunks, b"")], chunks)

    def _save(self, path: str, chunks: Iterator[bytes], target: Path, max_bytes: int, *, is_executable: bool) -> int:
        """Copy a file; return what remains of ``max_bytes``."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for chunk in chunks:
                max_bytes -= len(chunk)
                if max_bytes < 0:
                    message = f"{path} exceeds max_bytes= of the download: raise it"
                    raise ProtocolError(message)
                file.write(chunk)
        if is_executable:
            mode = target.stat().st_mode
            # For those who may read it.
            target.chmod(mode | (mode & _READABLE) >> 2)
        return max_bytes

    def _is_executable(self, path: str) -> bool:
        file = PurePosixPath(path)
        return any(entry.name == file.name and entry.is_executable for entry in self.list(str(file.parent)))

    def _url(self, path: str) -> str:
        if not isinstance(path, str):
            message = f"Expected the path of a file in the workspace as a str, got {path!r:.200}"
            raise ConfigurationError(message)
        return f"{self._base}/{quote(path, safe='/')}"


def _checked_name(entry: FileEntry) -> str:
    """Return the name of a directory entry. The server is not trusted: other names would lead out of the target.

    Raises:
        ProtocolError: If it is not a file name.
    """
    if entry.name in ("", ".", "..") or "/" in entry.name or "\0" in entry.name:
        message = f"The server listed a file with the name {entry.name!r}"
        raise ProtocolError(message)
    return entry.name
