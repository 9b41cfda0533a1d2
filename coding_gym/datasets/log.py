"""The file that episodes are appended to while they are collected, and read from afterwards.

It begins with ``_MAGIC``; each episode follows as a head, which has its number, hash, length and checksum, and its bytes. An
episode is one ``write``: whoever is killed in the middle leaves at most one that is torn, and that one is dropped.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from coding_gym.errors import DatasetError

__all__ = ["Entry", "EpisodeLog", "scan"]

_MAGIC = b"coding-gym episodes 1\n"
_HEAD = struct.Struct("<QII32s")
_SYNC_SECONDS = 1.0
"""How often what was written is forced to the disk: what a loss of power may cost; a kill costs nothing."""


class Entry(NamedTuple):
    """An episode in the file: where its bytes begin, how many they are, and the hash of what they hold."""

    offset: int
    length: int
    sha256: bytes

    def read(self, file: BinaryIO) -> bytes:
        """Return the bytes."""
        file.seek(self.offset)
        return file.read(self.length)


class EpisodeLog:
    """Appends episodes to a file, from any thread; makes the file if there is none, and drops what is torn.

    Args:
        path: The file.

    Raises:
        DatasetError: It is no such file, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._synced_at = time.monotonic()
        if path.exists():
            self.entries, end = scan(path)
        else:
            self.entries, end = {}, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        self._end = end
        if end == 0:
            self._write(_MAGIC)

    def append(self, index: int, data: bytes, sha256: bytes) -> None:
        """Write an episode; once this has returned, a kill does not lose it.

        Args:
            index: Its number.
            data: Its bytes.
            sha256: Its hash.

        Raises:
            DatasetError: It is there already.
        """
        record = _record(index, data, sha256)
        with self._lock:
            if index in self.entries:
                message = f"Episode {index} is in {self.path} already"
                raise DatasetError(message)
            self._write(record)
            self.entries[index] = Entry(self._end - len(data), len(data), sha256)
            if time.monotonic() - self._synced_at > _SYNC_SECONDS:
                self._sync()

    def sort(self) -> None:
        """Put the episodes into the order of their numbers, so that the file does not tell who was faster.

        The old file is replaced when the new one is complete.
        """
        with self._lock:
            self._sync()
            if list(self.entries) == sorted(self.entries):
                return
            new = self.path.with_suffix(".sorted")
            with self.path.open("rb") as source, new.open("wb") as target:
                target.write(_MAGIC)
                entries = {}
                for index in sorted(self.entries):
                    entry = self.entries[index]
                    target.write(_record(index, entry.read(source), entry.sha256))
                    entries[index] = entry._replace(offset=target.tell() - entry.length)
                target.flush()
                os.fsync(target.fileno())
            new.replace(self.path)
            os.close(self._file)
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._file, self._end, os.SEEK_SET)
            self.entries = entries

    def close(self) -> None:
        """Force everything to the disk; harmless when closed already."""
        with self._lock:
            if self._file >= 0:
                self._sync()
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except BaseException:
            # A full disk, or Ctrl-C: the next record must not follow half a one.
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(data)

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced_at = time.monotonic()


def scan(path: Path) -> tuple[dict[int, Entry], int]:
    """Find the episodes of a file; returns where each is, in the order of the file, and where the last ends.

    What is torn at the end of the file is left out.

    Raises:
        DatasetError: It is no such file, or is damaged before its end.
    """
    size = path.stat().st_size
    entries: dict[int, Entry] = {}
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            if _MAGIC.startswith(magic):
                return {}, 0
            message = f"{path} is no file of episodes, or one of another version of coding-gym"
            raise DatasetError(message)
        end = file.tell()
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            index, length, checksum, sha256 = _HEAD.unpack(head)
            data = file.read(length)
            if not length or len(data) < length or _checksum(index, sha256, data) != checksum:
                if length and file.tell() < size:
                    message = f"{path} is damaged at byte {end}: restore it, or collect anew into another directory"
                    raise DatasetError(message)
                break
            entries[index] = Entry(end + _HEAD.size, length, sha256)
            end = file.tell()
    return entries, end


def _record(index: int, data: bytes, sha256: bytes) -> bytes:
    return _HEAD.pack(index, len(data), _checksum(index, sha256, data), sha256) + data


def _checksum(index: int, sha256: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(sha256, index & 0xFFFFFFFF))
