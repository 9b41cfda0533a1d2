"""State of a pool: its sandboxes, waiting callers, and background work."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from functools import partial

from coding_gym.client.address import Address
from coding_gym.errors import (
    ConfigurationError,
    PoolClosedError,
    SandboxStartError,
    TransportError,
)
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool.health import HEALTH_TIMEOUT, MAX_FAILED_CHECKS, check, check_regularly, slots_of
from coding_gym.sandbox.pool.lease import Lease, PooledMember
from coding_gym.sandbox.pool.stats import PoolCounts, PoolStats
from coding_gym.sandbox.remote import start_remote

__all__ = ["PoolState"]

_log = logging.getLogger("coding_gym")

_CHOICES = 16
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
        servers: Addresses of the servers to use instead of starting sandboxes.
    """

    def __init__(
        self, config: SandboxConfig, *, size: int, max_episodes: int | None, servers: Sequence[str] | None = None
    ) -> None:
        self.config = config
        self._servers = None if servers is None else tuple(servers)
        self.size = size
        self.max_episodes = max_episodes
        self._owner = os.getpid()
        # A separate lock: Ctrl-C may arrive between the condition's acquisition of its lock and the block that releases it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._members: list[PooledMember] = []
        # Those that may have free slots, since a full pool of a thousand servers must not be searched at each release; with the
        # slots of leases that were garbage collected, from the next health check on.
        self._roomy: set[PooledMember] = set()
        self._random = random.Random()  # noqa: S311 - no secret
        self._waiting: deque[Future[Lease]] = deque()
        self._unreachable: dict[str, Exception] = {}
        self._not_retried: set[str] = set()
        self._starts: dict[object, str | None] = {}
        self._error: Exception | None = None
        self._is_refused = False
        self._counts = PoolCounts()
        self._workers: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    @property
    def stats(self) -> PoolStats:
        """Current statistics of the pool."""
        with self._lock:
            free = sum(max(member.free, 0) for member in self._usable())
            return PoolStats(
                sandboxes=len(self._members),
                idle=max(min(free, self._available()), 0),
                busy=sum(member.busy for member in self._members),
                starting=len(self._starts) * self.config.sessions,
                waiting=sum(not future.done() for future in self._waiting),
                **self._counts.fields(),
            )

    @property
    def uses_servers(self) -> bool:
        """Whether the sandboxes are servers that the pool has not started."""
        return self._servers is not None

    @property
    def is_contended(self) -> bool:
        """Whether callers wait for slots of servers, some of which may be lost: leases should be released between episodes."""
        with self._lock:
            return self._servers is not None and self._next_waiting() is not None

    # The interface of leases.

    def begin_episode_in(self, member: PooledMember) -> bool:
        """Count an episode; return False if the sandbox is retired, or callers wait for servers that have been lost."""
        self._check_owner()
        with self._lock:
            if self._is_retired(member) or self.is_contended:
                return False
            self._count_episode(member)
            self._fill()
            return True

    def return_full(self, lease: Lease, member: PooledMember) -> bool:
        """Free the slot of a lease, if other clients of the server have taken it; until the next check, it counts as full."""
        if member.base_url is None or os.getpid() != self._owner:
            return False
        with self._lock:
            member.leases.discard(lease)
            member.slots = member.busy
            self._assign()
        return True

    def return_lease(self, lease: Lease, member: PooledMember, *, dead: bool) -> None:
        """Free the slot of a lease."""
        if os.getpid() != self._owner:
            # The lock may have been held when the process forked.
            return
        with self._lock:
            member.leases.discard(lease)
            self._roomy.add(member)
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
        if self._may_retire:
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

    def _lease_free(self) -> Lease | None:
        """Lease a slot if one is free, and no caller waits."""
        member = None if self._next_waiting() is not None else self._best_member()
        if member is None:
            return None
        lease = Lease(self, member)
        self._count_episode(member)
        return lease

    def _best_member(self) -> PooledMember | None:
        """Return the sandbox with the largest share of free slots, of several the one with the most.

        Of thousands, it is the best of a random few: that spreads leases almost as evenly, in constant time.
        """
        if self._servers is None and self._available() <= 0:
            return None
        if len(self._members) <= _CHOICES:
            return self._best_of(self._members)
        while candidates := list(self._roomy):
            if len(candidates) > _CHOICES:
                candidates = self._random.sample(candidates, _CHOICES)
            if (best := self._best_of(candidates)) is not None:
                return best
            self._roomy.difference_update(candidates)
        return None

    def _best_of(self, candidates: list[PooledMember]) -> PooledMember | None:
        free = [member for member in candidates if member.free > 0 and not self._is_retired(member)]
        return max(free, key=lambda member: (member.free / member.slots, member.free), default=None)

    def _available(self) -> int:
        """Return the number of slots that may still be leased; a sandbox in its last episode counts until it ends."""
        if self._servers is not None:
            return sum(max(member.free, 0) for member in self._usable())
        return self.size * self.config.sessions - sum(member.busy for member in self._members)

    def _usable(self) -> list[PooledMember]:
        return [member for member in self._members if not self._is_retired(member)]

    @property
    def _may_retire(self) -> bool:
        """Whether sandboxes can be retired that are still members."""
        return self.max_episodes is not None

    def _is_retired(self, member: PooledMember) -> bool:
        return member.is_leaving or (self.max_episodes is not None and member.episodes >= self.max_episodes)

    def _count_episode(self, member: PooledMember) -> None:
        member.episodes += 1
        self._counts["episodes"] += 1

    def _replace(self, member: PooledMember, why: str) -> None:
        # If the pool is closing, it closes this sandbox as well.
        if self._in_background(member.sandbox.close):
            self._counts[why] += 1
            self._members.remove(member)
            member.is_leaving = True

    def _fill(self) -> None:
        """Start missing sandboxes; retired ones do not count, as their last episodes may take long."""
        if self._is_refused:
            return
        for base_url in self._missing():
            start = object()
            if self._in_background(partial(self._start_one, start, base_url)):
                self._starts[start] = base_url

    def _missing(self) -> Sequence[str | None]:
        """Return the addresses of missing servers, or None for each missing sandbox that the pool starts.

        A server that could not be used is missing again with the next health check.
        """
        if self._servers is None:
            return [None] * (self.size - len(self._usable()) - len(self._starts))
        if not self._may_retire and len(self._members) + len(self._starts) + len(self._not_retried) >= len(self._servers):
            return []
        known = {*self._starts.values(), *(member.base_url for member in self._members)}
        return [url for url in self._servers if url not in known and url not in self._not_retried]

    def _in_background(self, work: Callable[[], object]) -> bool:
        """Submit work to a thread; return whether it was accepted."""
        if self._closing.is_set() or os.getpid() != self._owner:
            return False
        if self._workers is None:
            starts = _PARALLEL_STARTS if self._servers is not None else min(self.size, _PARALLEL_STARTS)
            self._workers = ThreadPoolExecutor(starts + 1, thread_name_prefix="coding_gym_pool")
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
            self._counts.wait_times.add(seconds)

    def _withdraw(self, future: Future[Lease]) -> None:
        """Leave the queue, and release a lease granted at the last moment. Called without the lock."""
        if not future.cancel() and future.exception() is None:
            future.result().release()
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(future)

    def _open_one(self, base_url: str | None) -> PooledMember:
        """Start a sandbox, or connect to a server. Called without the lock."""
        if base_url is None:
            return PooledMember(start_sandbox(self.config), self.config.sessions)
        return self._open_server(base_url)

    def _open_server(self, base_url: str) -> PooledMember:
        # Before the session that checks the token, which would count.
        address = Address.of_url(base_url, token=self.config.token)
        slots = slots_of(address, busy=0, timeout=min(HEALTH_TIMEOUT, self.config.start_timeout))
        return PooledMember(start_remote(address, timeout=self.config.start_timeout), slots, base_url=base_url)

    def _start_one(self, start: object, base_url: str | None) -> None:
        """Start a sandbox, in a background thread. Called without the lock."""
        member = error = None
        began = time.monotonic()
        if not self._closing.is_set():
            try:
                member = self._open_one(base_url)
            except Exception as caught:  # noqa: BLE001 - the waiting caller gets it
                error = caught
        with self._lock:
            self._starts.pop(start, None)
            if member is not None and not self._closing.is_set() and self._is_wanted(base_url):
                self._counts["started"] += 1
                self._counts.start_times.add(time.monotonic() - began)
                self._members.append(member)
                self._roomy.add(member)
                if base_url is not None:
                    self._unreachable.pop(base_url, None)
                self._assign()
                return
            if error is not None and base_url is not None:
                self._counts["failed"] += 1
                self._on_unreachable(base_url, error)
            elif error is not None:
                self._counts["failed"] += 1
                self._error = error
                # The same configuration would be refused again: only the next call of a user retries.
                self._is_refused = isinstance(error, ConfigurationError)
                self._log_failure(error)
            self._changed.notify_all()
        if member is not None:
            member.sandbox.close()

    def _is_wanted(self, base_url: str | None) -> bool:
        return len(self._usable()) < self.size if self._servers is None else base_url in self._servers

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

    def _on_unreachable(self, base_url: str, error: Exception) -> None:
        """Report a server that cannot be used; the next health check tries it again."""
        if base_url not in self._unreachable:
            _log.warning("the pool cannot use the server at %s, and will try again: %s", base_url, error)
        self._unreachable[base_url] = error
        self._not_retried.add(base_url)
        if isinstance(error, TransportError | SandboxStartError):
            return
        # A wrong token or another version: waiting does not help.
        self._error = error
        while not self._members and not self._starts and (future := self._next_waiting()) is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)

    def check_health(self) -> None:
        """Replace idle sandboxes that have died, and retry failed starts. Called without the lock."""
        with self._lock:
            members = self._to_check()
        # Even if checks of dead sandboxes time out, the others are checked again before they would end by themselves.
        timeout = min(HEALTH_TIMEOUT, self.config.idle_timeout / 2 / MAX_FAILED_CHECKS)
        # Sandboxes in use are checked, too, which keeps them from ending by themselves; in parallel, as dead ones time out.
        with ThreadPoolExecutor(_PARALLEL_CHECKS) as threads:
            healthy = list(threads.map(partial(check, timeout=timeout), members))
        with self._lock:
            for member, is_healthy in zip(members, healthy, strict=True):
                # A server that is lost gets no new leases; sessions that it still has are not the pool's to end.
                is_idle = not member.busy or member.base_url is not None
                if not is_healthy and is_idle and member in self._members:
                    self._replace(member, "lost")
            self._not_retried.clear()
            self._roomy.update(self._members)
            self._assign()

    def _to_check(self) -> list[PooledMember]:
        """Return the sandboxes that the next health check is for."""
        return list(self._members)
