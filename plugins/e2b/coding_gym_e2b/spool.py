"""Space on this machine's disk for what clients send."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from coding_gym_e2b.failures import ApiError

__all__ = ["Spool", "SpoolShare"]


class Spool:
    """Limits of what is kept on the disk of this machine.

    Args:
        what: Name of the items, for messages.
        largest: Maximum size of an item in bytes.
        total: Maximum size of all items together in bytes.
        advice: What to do instead of sending a larger one.
    """

    def __init__(self, what: str, *, largest: int, total: int, advice: str = "") -> None:
        self.what = what
        self.largest = largest
        self.total = total
        self.advice = advice
        self.used = 0

    def has_room(self, count: int) -> bool:
        """Return whether ``count`` further bytes may be kept."""
        return self.used + count <= self.total


class SpoolShare:
    """Space of one stored item. Close it once the item is removed.

    Args:
        spool: The limits.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._size = 0

    def grow(self, count: int) -> None:
        """Reserve space for ``count`` further bytes.

        Raises:
            ApiError: If that exceeds a limit.
        """
        spool = self._spool
        if self._size + count > spool.largest:
            message = f"{spool.what} must not exceed {spool.largest} bytes{spool.advice}"
            raise ApiError(413, message)
        if not spool.has_room(count):
            message = f"{spool.what} of all clients together must not exceed {spool.total} bytes: try again later"
            raise ApiError(413, message)
        self._size += count
        spool.used += count

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield chunks, and take their space.

        Raises:
            ApiError: If that exceeds a limit.
        """
        async for chunk in chunks:
            self.grow(len(chunk))
            yield chunk

    def close(self) -> None:
        """Give the space back. Idempotent."""
        self._spool.used -= self._size
        self._size = 0
