"""``SandboxPool``: warm sandboxes for many environments, replaced when they die or reach their episode limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from types import TracebackType
from typing import Any, Unpack

from coding_gym._validation import check_count, parameter_names
from coding_gym.errors import CodingGymError, ConfigurationError, PoolClosedError, PoolTimeoutError
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs, sandbox_config
from coding_gym.sandbox.pool.lease import Lease
from coding_gym.sandbox.pool.state import PoolState
from coding_gym.telemetry import report_pool

__all__ = ["SandboxPool"]


class SandboxPool(PoolState):
    """Keeps sandboxes warm, leases their slots in order of request, and replaces dead sandboxes.

    Each sandbox has ``sessions`` slots, 1 by default. Every episode begins in a fresh interpreter and an empty workspace. Use
    the pool as a context manager, or call ``close``.

    With ``provider="remote"`` and ``base_urls``, the pool leases the sessions of servers that run already, as many as each of
    them has; it neither starts nor stops any. A server that does not answer is left out until it answers again.

    Thread-safe, but unusable in a fork of the process that created it.

    Args:
        size: Number of sandboxes; with ``base_urls``, there is one for each. At most ``size`` times ``sessions`` slots are
            occupied at a time, although there are more sandboxes while some are in their last episode.
        max_episodes: Number of episodes after which a sandbox is replaced; the new one starts during the last of them. None for
            no limit.
        acquire_timeout: Default number of seconds that ``acquire`` waits for a slot; None for no limit.
        config: The sandboxes, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``sessions=8`` ...

    Raises:
        ConfigurationError: If an option is invalid.

    Example:
        >>> with SandboxPool(size=2, provider="local") as pool:  # doctest: +SKIP
        ...     env = gym.make("CodingEnv-v0", pool=pool)
    """

    def __init__(
        self,
        size: int = 1,
        *,
        max_episodes: int | None = 100,
        acquire_timeout: float | None = 120.0,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        check_count("size", size, 1)
        if max_episodes is not None:
            check_count("max_episodes", max_episodes, 1)
        seconds: Any = acquire_timeout
        if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
            message = f"Expected acquire_timeout= to be a number of seconds or None, got {seconds!r}"
            raise ConfigurationError(message)
        resolved = sandbox_config(config, sandbox_options, parameter_names(SandboxPool))
        if resolved.base_urls:
            if size not in (1, len(resolved.base_urls)):
                message = f"size={size} does not fit the {len(resolved.base_urls)} servers of base_urls=: omit size="
                raise ConfigurationError(message)
            # Servers are not replaced.
            size, max_episodes = len(resolved.base_urls), None
        super().__init__(resolved, size=size, max_episodes=max_episodes, servers=resolved.base_urls or None)
        self.acquire_timeout = acquire_timeout
        report_pool(self)

    def start(self, *, timeout: float | None = None) -> None:
        """Start all sandboxes and wait until they are ready. Idempotent.

        Args:
            timeout: Timeout in seconds; None for no limit.

        Raises:
            ConfigurationError: If they cannot fulfill the configuration; there is no retry until the next call.
            ProviderError: If one cannot be started.
            PoolTimeoutError: If they are not ready in time.
            PoolClosedError: If the pool is closed.
        """
        self._check_owner()
        with self._lock:
            self._error = None
            self._is_refused = False
            self._not_retried.clear()
            self._fill()
            if not self._changed.wait_for(lambda: self._error or self._closing.is_set() or not self._starts, timeout):
                message = f"The sandboxes were not ready within {timeout:g} s: {self._describe()}"
                raise PoolTimeoutError(message)
            if self._closing.is_set():
                raise PoolClosedError
            if self._error is not None:
                raise self._error
            if not self._members and self._unreachable:
                raise next(iter(self._unreachable.values()))

    def acquire(self, *, timeout: float | None = None) -> Lease:
        """Lease a slot, waiting for one if necessary: first come, first served.

        Args:
            timeout: Timeout in seconds; ``acquire_timeout`` if None.

        Raises:
            PoolTimeoutError: If none is free in time.
            PoolClosedError: If the pool is closed.
            ProviderError: If no sandbox is available.
        """
        timeout = self.acquire_timeout if timeout is None else timeout
        self._check_owner()
        future: Future[Lease] = Future()
        try:
            self._request(future)
            return future.result(timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._timeout_error(timeout) from None
            raise

    def acquire_free(self) -> Lease | None:
        """Lease a slot if one is free and no caller waits; None otherwise.

        Raises:
            PoolClosedError: If the pool is closed.
        """
        self._check_owner()
        with self._lock:
            if self._closing.is_set():
                raise PoolClosedError
            lease = self._lease_free()
            self._fill()
            return lease

    async def acquire_async(self, *, timeout: float | None = None) -> Lease:
        """Lease a slot without blocking the event loop; see ``acquire``."""
        timeout = self.acquire_timeout if timeout is None else timeout
        self._check_owner()
        future: Future[Lease] = Future()
        try:
            self._request(future)
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._timeout_error(timeout) from None
            raise

    def release(self, lease: Lease) -> None:
        """Release a lease; the same as ``lease.release()``."""
        lease.release()

    @property
    def capacity(self) -> int:
        """Number of slots; those of ``base_urls`` are asked for if necessary, and count without other clients' sessions.

        Raises:
            ProviderError: If the servers of ``base_urls`` cannot be used.
            TransportError: If none of them answers.
        """
        if self._servers is None:
            return self.size * self.config.sessions
        self.start()
        with self._lock:
            return sum(max(member.slots, 0) for member in self._usable())

    @property
    def capacity_source(self) -> str:
        """Description of the slots that ``capacity`` counts, for error messages."""
        if self._servers is None:
            return f"slots of the pool: it has size={self.size} sandboxes of sessions={self.config.sessions} each"
        return "sessions that the servers of base_urls= have for this pool"

    @property
    def is_usable(self) -> bool:
        """Whether the pool is open, and belongs to this process instead of one that it was forked from."""
        return os.getpid() == self._owner and not self._closing.is_set()

    @property
    def idle(self) -> int:
        """Number of idle slots."""
        return self.stats.idle

    @property
    def busy(self) -> int:
        """Number of occupied slots."""
        return self.stats.busy

    @property
    def starting(self) -> int:
        """Number of slots of sandboxes that are starting."""
        return self.stats.starting

    def close(self) -> None:
        """Remove all sandboxes, including those in use; waiting callers get a ``PoolClosedError``."""
        self._close(wait=True)

    def _timeout_error(self, timeout: float | None) -> PoolTimeoutError:
        with self._lock:
            self._counts["timeouts"] += 1
        return PoolTimeoutError(
            f"No sandbox was free within {timeout or 0:g} s. {self._describe()}. Raise size= or the timeout"
        )

    def _describe(self) -> str:
        stats = self.stats
        missing = f"; these servers cannot be used: {', '.join(sorted(self._unreachable))}" if self._unreachable else ""
        return (
            f"{stats.idle} slots are idle, {stats.busy} busy, {stats.starting} starting; {stats.waiting} callers wait{missing}"
        )

    def _close(self, *, wait: bool) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closing.set()
            waiting, self._waiting = self._waiting, deque()
            workers, self._workers = self._workers, None
            self._changed.notify_all()
        for future in waiting:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(PoolClosedError())
        if workers is not None:
            # A sandbox that is starting is removed by the thread that starts it.
            workers.shutdown(wait=wait)
        with self._lock:
            members, self._members = self._members, []
            self._roomy.clear()
        for member in members:
            member.sandbox.close()

    def __enter__(self) -> SandboxPool:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # Without waiting, as this may be one of the threads; a partially constructed object lacks attributes.
        with contextlib.suppress(Exception):
            self._close(wait=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> SandboxPool:
        # A copy of an environment, or of its spec, leases from the same pool.
        return self

    def __reduce__(self) -> Any:
        message = "A SandboxPool belongs to the process that created it: create one there, or omit pool="
        raise TypeError(message)
