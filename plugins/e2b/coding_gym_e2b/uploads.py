"""Files that clients upload for builds of templates."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator

from coding_gym_e2b.spool import Spool, SpoolShare

__all__ = ["Uploads"]

_LARGEST = 1 << 30
_TOTAL = 4 << 30
_MAX_ARCHIVES = 256
_PART_BYTES = 1 << 20


class _Archive:
    """An archive on the disk.

    Args:
        spool: The limits of all archives.

    Attributes:
        readers: Number of builds that read it.
        is_kept: Whether further builds may read it.
    """

    def __init__(self, spool: Spool) -> None:
        self.share = SpoolShare(spool)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by remove_unused
        self.readers = 0
        self.is_kept = True

    def remove_unused(self) -> None:
        """Remove it if nothing needs it any more."""
        if not self.is_kept and not self.readers:
            self.file.close()
            self.share.close()


class Uploads:
    """Archives of files for templates, by the hash that clients give them; those used longest ago make room for others."""

    def __init__(self) -> None:
        self._spool = Spool("The files of templates", largest=_LARGEST, total=_TOTAL)
        # Those used longest ago first.
        self._archives: dict[str, _Archive] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._archives

    async def add(self, digest: str, parts: AsyncIterator[bytes]) -> None:
        """Keep an archive.

        Raises:
            ApiError: If it is too large, or there is no room for it.
        """
        archive = _Archive(self._spool)
        try:
            async for part in parts:
                while self._archives and not self._spool.has_room(len(part)):
                    self._remove(next(iter(self._archives)))
                archive.share.grow(len(part))
                archive.file.write(part)
        except BaseException:
            archive.is_kept = False
            archive.remove_unused()
            raise
        self._remove(digest)
        self._archives[digest] = archive
        while len(self._archives) > _MAX_ARCHIVES:
            self._remove(next(iter(self._archives)))

    @contextlib.asynccontextmanager
    async def read(self, digest: str) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """Yield the parts of an archive.

        Raises:
            KeyError: If there is none.
        """
        archive = self._archives[digest] = self._archives.pop(digest)
        archive.readers += 1
        try:
            yield _parts(archive)
        finally:
            archive.readers -= 1
            archive.remove_unused()

    def close(self) -> None:
        """Remove all archives."""
        for digest in [*self._archives]:
            self._remove(digest)

    def _remove(self, digest: str) -> None:
        archive = self._archives.pop(digest, None)
        if archive is not None:
            archive.is_kept = False
            archive.remove_unused()


async def _parts(archive: _Archive) -> AsyncIterator[bytes]:
    position = 0
    while True:
        # Another build may read it, too.
        archive.file.seek(position)
        if not (part := archive.file.read(_PART_BYTES)):
            return
        position += len(part)
        yield part
