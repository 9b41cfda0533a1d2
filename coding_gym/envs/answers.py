"""``Answers``: the answers of environments that are stepped first come, first served."""

from __future__ import annotations

import threading

import gymnasium as gym

from coding_gym._validation import CLOSED_ENVIRONMENT
from coding_gym.envs.episode import StepResult
from coding_gym.errors import ConfigurationError, ReceiveTimeoutError

__all__ = ["Answers"]


class Answers:
    """The answers of environments, until they are received. Thread-safe.

    An environment is pending from ``expect`` to ``remove``. An answer is the result of a step or reset, or the error that has
    been raised instead.
    """

    def __init__(self) -> None:
        self._pending: set[int] = set()
        self._arrived: dict[int, StepResult | BaseException] = {}
        self._changed = threading.Condition()
        self._wanted = 1
        self._is_closed = False

    @property
    def pending(self) -> list[int]:
        """Indices of the pending environments, in ascending order."""
        with self._changed:
            return sorted(self._pending)

    def check_none_pending(self, call: str) -> None:
        """Raise if environments are pending.

        Args:
            call: Name of the method that may only be called without.

        Raises:
            gymnasium.error.AlreadyPendingCallError: If there are any.
        """
        if pending := self.pending:
            message = (
                f"Expected no pending environment in {call}(), got {_listed(pending)}: "
                f"receive their answers first, with recv(min_ready={len(pending)})"
            )
            raise gym.error.AlreadyPendingCallError(message, call)

    def check_idle(self, indices: list[int], call: str) -> None:
        """Raise if one of some environments is pending.

        Args:
            indices: The environments.
            call: Name of the method.

        Raises:
            gymnasium.error.AlreadyPendingCallError: If one is.
        """
        pending = set(self.pending)
        if busy := [index for index in indices if index in pending]:
            message = (
                f"Expected environments that have answered in {call}(), got {_listed(busy)}, which are pending: "
                "receive their answers first, with recv()"
            )
            raise gym.error.AlreadyPendingCallError(message, call)

    def expect(self, index: int) -> None:
        """Make an environment pending."""
        with self._changed:
            self._pending.add(index)

    def withdraw(self, index: int) -> None:
        """Expect no answer of an environment; if one arrives nevertheless, it is pending again."""
        with self._changed:
            self._pending.discard(index)

    def put(self, index: int, answer: StepResult | BaseException) -> None:
        """Add the answer of an environment."""
        with self._changed:
            self._pending.add(index)
            self._arrived[index] = answer
            # Waking up the receiver for each of many answers would cost more than the answers.
            if len(self._arrived) >= self._wanted or isinstance(answer, BaseException):
                self._changed.notify_all()

    def wait(self, min_ready: int, timeout: float | None) -> dict[int, StepResult]:
        """Wait for answers; return all that have arrived, by environment, in ascending order. ``remove`` removes them.

        Args:
            min_ready: Minimum number of answers.
            timeout: Timeout in seconds; None for no limit.

        Raises:
            gymnasium.error.NoAsyncCallError: If no environment is pending.
            ConfigurationError: If fewer than ``min_ready`` are.
            ReceiveTimeoutError: If too few answers arrive in time; they are kept.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            BaseException: The error of an environment, which is no longer pending; the other answers are kept.
        """
        with self._changed:
            self._check_enough(min_ready)
            self._wanted = min_ready
            limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            is_complete = self._changed.wait_for(self._is_complete, limit)
            if self._is_closed:
                raise gym.error.ClosedEnvironmentError(CLOSED_ENVIRONMENT)
            results: dict[int, StepResult] = {}
            for index, answer in sorted(self._arrived.items()):
                if isinstance(answer, BaseException):
                    self._remove(index)
                    answer.add_note(f"This is the answer of environment {index}, which is no longer pending.")
                    raise answer
                results[index] = answer
            if not is_complete:
                raise ReceiveTimeoutError(min_ready=min_ready, arrived=len(results), timeout=timeout or 0.0)
            return results

    def remove(self, indices: list[int]) -> None:
        """Remove the answers of some environments, which are then no longer pending."""
        with self._changed:
            for index in indices:
                self._remove(index)

    def close(self) -> None:
        """Let ``wait`` raise from now on, also in a thread that waits in it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _check_enough(self, min_ready: int) -> None:
        if not self._pending:
            message = "Expected a pending environment in recv(), got none: call send() or async_reset() first"
            raise gym.error.NoAsyncCallError(message, "recv")
        if min_ready > len(self._pending):
            message = (
                f"Expected min_ready= to be at most {len(self._pending)}, the number of pending environments, got {min_ready}: "
                "send more actions first, or pass a smaller number"
            )
            raise ConfigurationError(message)

    def _is_complete(self) -> bool:
        failed = any(isinstance(answer, BaseException) for answer in self._arrived.values())
        return self._is_closed or failed or len(self._arrived) >= self._wanted

    def _remove(self, index: int) -> None:
        del self._arrived[index]
        self._pending.discard(index)


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))
