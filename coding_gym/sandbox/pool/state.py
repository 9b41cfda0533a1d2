"""State of a pool: its sandboxes, waiting callers, and background work."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from functools import partial

from coding_gym.errors import ConfigurationError, PoolClosedError, PoolTimeoutError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool.health import HEALTH_TIMEOUT, MAX_FAILED_CHECKS, check_regularly, is_responsive
from coding_gym.sandbox.pool.lease import Lease, PooledMember
from coding_gym.sandbox.pool.stats import PoolStats

__all__ = ["PoolState"]

_log = logging.getLogger("coding_gym")

_PARALLEL_STARTS = 8
_PARALLEL_CHECKS = 8
_MAX_CHECK_INTERVAL = 5.0
_CHECKS_PER_IDLE_TIMEOUT = 4


class PoolState:
    """Sandboxes of a pool and the callers that wait for them; ``SandboxPool`` is its public interface.

    Args:
        config: The sandboxes.
        size: Number of sandboxes.
        max_episodes: Number of episodes after which a sandbox is replaced; None for no limit.
    """

    def __init__(self, config: SandboxConfig, *, size: int, max_episodes: int | None) -> None:
        self.config = config
        self.size = size
        self.max_episodes = max_episodes
        self._owner = os.getpid()
        # A separate lock: Ctrl-C may arrive between the condition's acquisition of its lock and the block that releases it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._members: list[PooledMember] = []
        self._waiting: deque[Future[Lease]] = deque()
        self._starts: set[object] = set()
        self._error: Exception | None = None
        self._is_refused = False
        self._counts = dict.fromkeys(("waits", "started", "recycled", "lost", "failed", "episodes"), 0)
        self._wait_seconds = 0.0
        self._workers: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    @property
    def stats(self) -> PoolStats:
        """Current statistics of the pool."""
        with self._lock:
            slots = self.config.sessions
            free = sum(slots - member.busy for member in self._usable())
            return PoolStats(
                idle=max(min(free, self._available()), 0),
                busy=sum(member.busy for member in self._members),
                starting=len(self._starts) * slots,
                waiting=sum(not future.done() for future in self._waiting),
                wait_seconds=self._wait_seconds,
                **self._counts,
            )

    # The interface of leases.

    def begin_episode_in(self, member: PooledMember) -> bool:
        """Count an episode; return False if the sandbox is retired."""
        self._check_owner()
        with self._lock:
            if member not in self._members or self._is_retired(member):
                return False
            self._count_episode(member)
            self._fill()
            return True

    def return_lease(self, lease: Lease, member: PooledMember, *, dead: bool) -> None:
        """Free the slot of a lease."""
        if os.getpid() != self._owner:
            # The lock may have been held when the process forked.
            return
        with self._lock:
            member.leases.discard(lease)
            if dead and member in self._members:
                self._replace(member, "lost")
            self._assign()

    def _check_owner(self) -> None:
        """Without the lock, which may never be released in a fork.

        Raises:
            ConfigurationError: If this is a fork of the process that made the pool.
        """
        if os.getpid() != self._owner:
            message = "SandboxPool cannot be used after fork(): create a new pool in the child process"
            raise ConfigurationError(message)

    # Everything below is called with the lock held, unless stated otherwise. Ctrl-C, or a garbage collection that frees a
    # slot, may occur between any two lines.

    def _assign(self) -> None:
        """Lease free slots to waiting callers, longest first, and start missing sandboxes."""
        for used in [member for member in self._members if self._is_retired(member) and not member.busy]:
            self._replace(used, "recycled")
        while (future := self._next_waiting()) is not None and (member := self._best_member()) is not None:
            lease = Lease(self, member)
            try:
                future.set_result(lease)
            except InvalidStateError:
                # The caller has just given up.
                member.leases.discard(lease)
            else:
                self._count_episode(member)
        self._fill()
        self._changed.notify_all()

    def _next_waiting(self) -> Future[Lease] | None:
        """Return the caller that has waited longest and still waits."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _best_member(self) -> PooledMember | None:
        """Return the sandbox with the largest number of free slots."""
        if self._available() <= 0:
            return None
        free = [member for member in self._usable() if member.busy < self.config.sessions]
        return min(free, key=lambda member: member.busy, default=None)

    def _available(self) -> int:
        """Return the number of slots that may still be leased; a sandbox in its last episode counts until it ends."""
        return self.size * self.config.sessions - sum(member.busy for member in self._members)

    def _usable(self) -> list[PooledMember]:
        return [member for member in self._members if not self._is_retired(member)]

    def _is_retired(self, member: PooledMember) -> bool:
        return self.max_episodes is not None and member.episodes >= self.max_episodes

    def _count_episode(self, member: PooledMember) -> None:
        member.episodes += 1
        self._counts["episodes"] += 1

    def _replace(self, member: PooledMember, why: str) -> None:
        # If the pool is closing, it closes this sandbox as well.
        if self._in_background(member.sandbox.close):
            self._counts[why] += 1
            self._members.remove(member)

    def _fill(self) -> None:
        """Start missing sandboxes; retired ones do not count, as their last episodes may take long."""
        if self._is_refused:
            return
        for _ in range(self.size - len(self._usable()) - len(self._starts)):
            start = object()
            if self._in_background(partial(self._start_one, start)):
                self._starts.add(start)

    def _in_background(self, work: Callable[[], object]) -> bool:
        """Submit work to a thread; return whether it was accepted."""
        if self._closing.is_set() or os.getpid() != self._owner:
            return False
        if self._workers is None:
            self._workers = ThreadPoolExecutor(min(self.size, _PARALLEL_STARTS) + 1, thread_name_prefix="coding_gym_pool")
            # Short enough that an idle sandbox does not end by itself.
            interval = min(self.config.idle_timeout / _CHECKS_PER_IDLE_TIMEOUT, _MAX_CHECK_INTERVAL)
            threading.Thread(
                target=check_regularly,
                args=(weakref.ref(self), self._closing, interval),
                name="coding_gym_pool_health",
                daemon=True,
            ).start()
        try:
            self._workers.submit(work)
        except RuntimeError:
            # The interpreter is shutting down.
            return False
        return True

    def _request(self, future: Future[Lease]) -> None:
        """Queue a request for a slot. Called without the lock."""
        asked_at = time.monotonic()
        with self._lock:
            if self._closing.is_set():
                raise PoolClosedError
            self._waiting.append(future)
            self._is_refused = False
            self._assign()
            if not future.done():
                self._counts["waits"] += 1
                future.add_done_callback(lambda _: self._count_wait(time.monotonic() - asked_at))

    def _count_wait(self, seconds: float) -> None:
        with self._lock:
            self._wait_seconds += seconds

    def _withdraw(self, future: Future[Lease]) -> None:
        """Leave the queue, and release a lease granted at the last moment. Called without the lock."""
        if not future.cancel() and future.exception() is None:
            future.result().release()
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(future)

    def _start_one(self, start: object) -> None:
        """Start a sandbox, in a background thread. Called without the lock."""
        sandbox = error = None
        if not self._closing.is_set():
            try:
                sandbox = start_sandbox(self.config)
            except Exception as caught:  # noqa: BLE001 - the waiting caller gets it
                error = caught
        with self._lock:
            self._starts.discard(start)
            if sandbox is not None and not self._closing.is_set() and len(self._usable()) < self.size:
                self._counts["started"] += 1
                self._members.append(PooledMember(sandbox))
                self._assign()
                return
            if error is not None:
                self._counts["failed"] += 1
                self._error = error
                # The same configuration would be refused again: only the next call of a user retries.
                self._is_refused = isinstance(error, ConfigurationError)
                self._log_failure(error)
            self._changed.notify_all()
        if sandbox is not None:
            sandbox.close()

    def _log_failure(self, error: Exception) -> None:
        """Raise the error in the caller that has waited longest, and start another sandbox for the others.

        If the configuration was refused, raise it in all of them.
        """
        if self._next_waiting() is None:
            _log.warning("a sandbox of the pool did not start: %s", error)
        while (future := self._next_waiting()) is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            if not self._is_refused:
                break
        if self._next_waiting() is not None:
            self._fill()

    def check_health(self) -> None:
        """Replace idle sandboxes that have died, and retry failed starts. Called without the lock."""
        with self._lock:
            members = list(self._members)
        # Even if checks of dead sandboxes time out, the others are checked again before they would end by themselves.
        timeout = min(HEALTH_TIMEOUT, self.config.idle_timeout / 2 / MAX_FAILED_CHECKS)
        # Sandboxes in use are checked, too, which keeps them from ending by themselves; in parallel, as dead ones time out.
        with ThreadPoolExecutor(_PARALLEL_CHECKS) as threads:
            healthy = list(threads.map(partial(is_responsive, timeout=timeout), members))
        with self._lock:
            for member, is_healthy in zip(members, healthy, strict=True):
                if not is_healthy and not member.busy and member in self._members:
                    self._replace(member, "lost")
            self._assign()

    def _timeout_error(self, timeout: float | None) -> PoolTimeoutError:
        return PoolTimeoutError(
            f"No sandbox was free within {timeout or 0:g} s. {self._describe()}. Raise size= or the timeout"
        )

    def _describe(self) -> str:
        stats = self.stats
        return f"{stats.idle} slots are idle, {stats.busy} busy, {stats.starting} starting; {stats.waiting} callers wait"
