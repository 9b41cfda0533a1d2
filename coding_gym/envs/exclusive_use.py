"""``ExclusiveUse``: refusal of concurrent calls."""

from __future__ import annotations

import threading
from types import TracebackType

from coding_gym.errors import ConcurrentUseError

__all__ = ["ExclusiveUse"]


class ExclusiveUse:
    """Context manager for the calls of an object that one thread at a time may make.

    Responses carry no ids: a second request would receive the response to the first one. Waiting for the first call instead
    would make the order of the steps of an episode depend on the scheduling of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
