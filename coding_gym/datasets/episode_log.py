"""Append-only log file of episodes.

It begins with ``_MAGIC``, followed by one record per episode: a header with index, length, checksum and hash, and the encoded
episode. A record is written in one ``write``: a killed process leaves at most one torn record, at the end, which is dropped.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from coding_gym.errors import DatasetError

__all__ = ["EpisodeLog", "LogEntry", "Record", "has_episodes", "matches_checksum", "records", "scan"]

_MAGIC = b"coding-gym episodes 1\n"
_HEAD = struct.Struct("<QII32s")
_SYNC_SECONDS = 1.0
"""Minimum interval between fsyncs in seconds: a power failure loses unsynced records, a killed process loses none."""


class LogEntry(NamedTuple):
    """Location of an encoded episode in the log: offset and length in bytes, and the SHA-256 of its contents."""

    offset: int
    length: int
    sha256: bytes

    def read(self, file: BinaryIO) -> bytes:
        """Return the encoded episode."""
        file.seek(self.offset)
        return file.read(self.length)


class Record(NamedTuple):
    """Record of a log, which may be damaged.

    Attributes:
        episode: Index of the episode.
        offset: Offset of the encoded episode in bytes.
        length: Length of the encoded episode in bytes.
        is_intact: Whether the checksum matches.
    """

    episode: int
    offset: int
    length: int
    is_intact: bool

    @property
    def end(self) -> int:
        """Offset of the next record in bytes."""
        return self.offset + self.length


class EpisodeLog:
    """Thread-safe writer of a log of episodes. Creates the file if it does not exist, and truncates a torn record.

    Args:
        path: Path of the log.

    Raises:
        DatasetError: If the file is not an episode log, or is corrupt.
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
        """Append an episode, which then survives a kill of the process.

        Args:
            index: Index of the episode.
            data: Encoded episode.
            sha256: Hash of the episode's contents.

        Raises:
            DatasetError: If the log already contains the episode.
        """
        record = _record(index, data, sha256)
        with self._lock:
            if index in self.entries:
                message = f"Episode {index} is already in {self.path}"
                raise DatasetError(message)
            self._write(record)
            self.entries[index] = LogEntry(self._end - len(data), len(data), sha256)
            if time.monotonic() - self._synced_at > _SYNC_SECONDS:
                self._sync()

    def sort(self) -> None:
        """Sort the records by index, so that the file does not depend on the order in which episodes completed.

        The file is replaced atomically.
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
        """Sync the file to disk and close it. Idempotent."""
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
            # On a full disk or Ctrl-C, remove the partial record, which the next one must not follow.
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(data)

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced_at = time.monotonic()


def scan(path: Path) -> tuple[dict[int, LogEntry], int]:
    """Scan a log; return the location of each episode, in file order, and the offset of the end of the last record.

    A torn record at the end of the file is ignored.

    Raises:
        DatasetError: If the file is not an episode log, or is corrupt before its last record.
    """
    size = path.stat().st_size
    entries: dict[int, LogEntry] = {}
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            if _MAGIC.startswith(magic):
                return {}, 0
            message = f"{path} is not a file of episodes, or was written by another version of coding-gym"
            raise DatasetError(message)
        end = file.tell()
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            index, length, checksum, sha256 = _HEAD.unpack(head)
            data = file.read(length)
            if not length or len(data) < length or _checksum(index, sha256, data) != checksum:
                if length and file.tell() < size:
                    message = f"{path} is damaged at byte {end}: restore it, or collect into another directory"
                    raise DatasetError(message)
                break
            entries[index] = LogEntry(end + _HEAD.size, length, sha256)
            end = file.tell()
    return entries, end


def records(log: BinaryIO, start: int = 0) -> Iterator[Record]:
    """Iterate over the records of a log from a given one, including damaged ones whose end is known.

    Stops before a record at the end that is incomplete, such as one that is being written, and where nothing can be read.

    Args:
        log: The file, which may grow or shrink meanwhile: what is read is what it contained at the beginning. Its position
            may change between records.
        start: Offset of the first record in bytes; 0 for the beginning of the file.

    Raises:
        DatasetError: If the file is not an episode log, or if after a damaged record no other one is found.
    """
    # Not mapped into memory: a mapped file that shrinks kills the process.
    size = log.seek(0, os.SEEK_END)
    if start == 0:
        log.seek(0)
        magic = log.read(len(_MAGIC))
        if magic != _MAGIC:
            if _MAGIC.startswith(magic):
                return
            message = "This is not a file of episodes, or was written by another version of coding-gym"
            raise DatasetError(message)
        start = len(_MAGIC)
    damaged: Record | None = None
    while (record := _record_at(log, start, size)) is not None:
        if not record.is_intact and (damaged is not None or record.end == size):
            break
        if damaged is not None:
            yield damaged
        damaged = None if record.is_intact else record
        if record.is_intact:
            yield record
        start = record.end
    if damaged is not None:
        message = f"The episodes are damaged at byte {damaged.offset}: those that follow cannot be read"
        raise DatasetError(message)


def matches_checksum(log: BinaryIO, offset: int) -> bool:
    """Return whether a log has an intact record.

    Args:
        log: The file.
        offset: Offset of the encoded episode in bytes.
    """
    record = _record_at(log, offset - _HEAD.size, log.seek(0, os.SEEK_END))
    return record is not None and record.is_intact


def _record_at(log: BinaryIO, start: int, size: int) -> Record | None:
    log.seek(start)
    head = log.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    index, length, checksum, sha256 = _HEAD.unpack(head)
    offset = start + _HEAD.size
    if not length or offset + length > size:
        return None
    data = log.read(length)
    if len(data) < length:
        return None
    return Record(index, offset, length, _checksum(index, sha256, data) == checksum)


def _record(index: int, data: bytes, sha256: bytes) -> bytes:
    return _HEAD.pack(index, len(data), _checksum(index, sha256, data), sha256) + data


def _checksum(index: int, sha256: bytes, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(sha256, index & 0xFFFFFFFF))


def has_episodes(path: Path) -> bool:
    """Return whether a log exists and is not empty; its first episode may be incomplete."""
    return path.exists() and path.stat().st_size > len(_MAGIC)
