"""Retry policy of failed resets."""

from __future__ import annotations

import time

from coding_gym.errors import CapacityError, ProtocolError, TransportError
from coding_gym_server.protocol import ErrorCode

__all__ = ["ResetRetryPolicy"]

_RESET_ATTEMPTS = 2
_SLOT_TIMEOUT = 2.0
_CAPACITY_TIMEOUT = 5.0
_RETRY_SECONDS = 0.02


class ResetRetryPolicy:
    """Retry policy of failed resets."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._failures = 0

    def pause_after(self, error: Exception) -> float:
        """Return the number of seconds to wait before the next attempt, in a new session.

        Raises:
            Exception: ``error``, if there should be no further attempt.
        """
        waited = time.monotonic() - self._started
        if isinstance(error, CapacityError):
            # The slot may still belong to the last session, which was just closed.
            if waited < _SLOT_TIMEOUT:
                return _RETRY_SECONDS
        elif isinstance(error, ProtocolError) and error.code == ErrorCode.EXECUTION_ERROR:
            # No process can be forked until the server has ended the session that uses up the limit.
            if waited < _CAPACITY_TIMEOUT:
                return _RETRY_SECONDS
        elif isinstance(error, (TransportError, ProtocolError)):
            # The sandbox died since the last episode.
            self._failures += 1
            if self._failures < _RESET_ATTEMPTS:
                return 0.0
        raise error
