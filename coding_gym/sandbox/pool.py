"""Warm sandboxes for many environments, replaced when they die or reach their episode limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from coding_gym._validation import CLOSED_ENVIRONMENT, check_count, parameter_names
from coding_gym.client.address import Address
from coding_gym.errors import (
    CodingGymError,
    ConfigurationError,
    PoolClosedError,
    PoolTimeoutError,
    ProtocolError,
    SandboxStartError,
    TransportError,
)
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs, sandbox_config
from coding_gym.sandbox.managed import ManagedSandbox
from coding_gym.sandbox.remote import RemoteSandbox, start_remote
from coding_gym.sandbox.start import start_sandbox
from coding_gym.telemetry import report_pool
from coding_gym_server.durations import WAIT_BOUNDS, DurationHistogram

__all__ = ["Lease", "LeaseRequest", "PoolStats", "PooledMember", "SandboxPool", "managed_sandbox", "resolve_config"]

_log = logging.getLogger("coding_gym")

_CHOICES = 16
_PARALLEL_STARTS = 8
_PARALLEL_CHECKS = 8
_MAX_CHECK_INTERVAL = 5.0
_CHECKS_PER_IDLE_TIMEOUT = 4
_HEALTH_TIMEOUT = 2.0
_MAX_FAILED_CHECKS = 2


@dataclass(frozen=True, kw_only=True)
class PoolStats:
    """Statistics of a pool.

    Attributes:
        sandboxes: Sandboxes that are ready; with ``base_urls``, servers that answer.
        idle: Idle slots.
        busy: Occupied slots.
        starting: Slots of sandboxes that are starting.
        waiting: Callers that wait for a slot.
        waits: Callers that have had to wait so far.
        wait_seconds: Their total waiting time.
        timeouts: Those of them that have got no slot in time.
        started: Sandboxes that have started so far.
        recycled: Sandboxes that were replaced after their last episode, because they were worn or had had ``max_episodes``.
        lost: Sandboxes that were replaced because they died.
        failed: Sandboxes that failed to start.
        episodes: Episodes that have begun so far.
        wait_times: How long callers have waited that had to.
        start_times: How long sandboxes took to start; with ``base_urls``, connections to servers.
    """

    sandboxes: int
    idle: int
    busy: int
    starting: int
    waiting: int
    waits: int
    wait_seconds: float
    timeouts: int
    started: int
    recycled: int
    lost: int
    failed: int
    episodes: int
    wait_times: DurationHistogram
    start_times: DurationHistogram


class _PoolCounts(dict[str, int]):
    """Counters of a pool, by the name of the statistic.

    Attributes:
        wait_times: How long callers have waited.
        start_times: How long sandboxes took to start.
    """

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("waits", "timeouts", "started", "recycled", "lost", "failed", "episodes"), 0))
        self.wait_times = DurationHistogram(WAIT_BOUNDS)
        self.start_times = DurationHistogram(WAIT_BOUNDS)

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``PoolStats`` that are counted."""
        return {
            **self,
            "wait_seconds": self.wait_times.total,
            "wait_times": self.wait_times.copy(),
            "start_times": self.start_times.copy(),
        }


class PooledMember:
    """A sandbox of a pool.

    Args:
        sandbox: The sandbox.
        slots: Number of its slots.
        base_url: Address of a server that is not the pool's own; None for a sandbox that the pool has started.
        image: Its image; None for the default one, and for a server.

    Attributes:
        used_at: When its last episode began.
        is_leaving: Whether it gets no more episodes, because it is drained, has been replaced, or makes way for another image.
        is_worn: Whether its server says that it should be replaced; never for one that the pool has not started.
    """

    def __init__(self, sandbox: Sandbox, slots: int, *, base_url: str | None = None, image: str | None = None) -> None:
        self.sandbox = sandbox
        self.slots = slots
        self.base_url = base_url
        self.image = image
        # Weak, so that a lost lease, for example after Ctrl-C between two lines, occupies no slot.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.episodes = 0
        self.used_at = time.monotonic()
        self.is_leaving = False
        self.is_worn = False

    @property
    def busy(self) -> int:
        return len(self.leases)

    @property
    def free(self) -> int:
        """Number of free slots; negative if other clients of a server have taken some that are leased."""
        return self.slots - self.busy


class Lease:
    """A slot of a pooled sandbox, occupied until ``release`` is called or the lease is garbage collected.

    As a context manager, it is released at the end of the block.
    """

    def __init__(self, pool: SandboxPool, member: PooledMember) -> None:
        self._pool = pool
        self._member = member
        self._released = False
        member.leases.add(self)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, in which one session may be opened."""
        return self._member.sandbox

    def begin_episode(self) -> bool:
        """Count another episode; return False if the caller should release this lease, and acquire another one."""
        return self._pool._begin_episode_in(self._member)

    def release_full(self) -> bool:
        """Free the slot because the server has no free session; return False, keeping it, if the sandbox is the pool's own."""
        self._released = self._released or self._pool._return_full(self, self._member)
        return self._released

    def release(self, *, dead: bool = False) -> None:
        """Free the slot. Idempotent.

        Args:
            dead: Whether the sandbox does not answer and should be replaced.
        """
        if not self._released:
            self._released = True
            self._pool._return_lease(self, self._member, dead=dead)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class LeaseRequest(Future[Lease]):
    """Request for a lease; canceled if it is no longer wanted.

    Args:
        image: The image of the sandbox; None for that of the pool's configuration.
    """

    def __init__(self, image: str | None = None) -> None:
        super().__init__()
        self.image = image


class SandboxPool:
    """Keeps sandboxes warm, leases their slots in order of request, and replaces dead sandboxes.

    Each sandbox has ``sessions`` slots, 1 by default. Every episode begins in a fresh interpreter and an empty workspace. Use
    the pool as a context manager, or call ``close``.

    A lease may be for another image than that of the configuration, as ``reset(options={"image": ...})`` and tasks with images
    request it. Its sandboxes are started when they are needed, and kept for the next episodes with that image; if there are
    ``size`` sandboxes already, the one of another image whose last episode began first is replaced.

    With ``provider="remote"`` and ``base_urls``, the pool leases the sessions of servers that run already, as many as each of
    them has; it neither starts nor stops any. A server that does not answer is left out until it answers again.

    Thread-safe, but unusable in a fork of the process that created it.

    Args:
        size: Number of sandboxes; with ``base_urls``, there is one for each. At most ``size`` times ``sessions`` slots are
            occupied at a time, although there are more sandboxes while some are in their last episode.
        max_episodes: Number of episodes after which a sandbox is replaced; the new one starts during the last of them. None,
            the default, for no limit: sandboxes are replaced when they die, or are worn.
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
        max_episodes: int | None = None,
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
        self._set_up(
            resolved,
            size=size,
            max_episodes=max_episodes,
            acquire_timeout=acquire_timeout,
            servers=resolved.base_urls or None,
        )

    def _set_up(
        self,
        config: SandboxConfig,
        *,
        size: int,
        max_episodes: int | None,
        acquire_timeout: float | None,
        servers: Sequence[str] | None,
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
        self._waiting: deque[LeaseRequest] = deque()
        self._unreachable: dict[str, Exception] = {}
        self._not_retried: set[str] = set()
        self._starts: dict[object, str | None] = {}
        self._error: Exception | None = None
        self._is_refused = False
        self._counts = _PoolCounts()
        self._workers: ThreadPoolExecutor | None = None
        self._closing = threading.Event()
        self.acquire_timeout = acquire_timeout
        report_pool(self)

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

    def acquire(self, *, timeout: float | None = None, image: str | None = None, request: LeaseRequest | None = None) -> Lease:
        """Lease a slot, waiting for one if necessary: first come, first served among those who want the same image.

        Args:
            timeout: Timeout in seconds; ``acquire_timeout`` if None.
            image: The image of the sandbox; None for that of the pool's configuration.
            request: Gets the lease, of its image; another thread may cancel it.

        Raises:
            ConfigurationError: If the sandboxes of the pool are servers that have an image already, and another one is wanted.
            concurrent.futures.CancelledError: If ``request`` is canceled.
            PoolTimeoutError: If none is free in time.
            PoolClosedError: If the pool is closed.
            ProviderError: If no sandbox is available.
        """
        timeout = self.acquire_timeout if timeout is None else timeout
        self._check_owner()
        future = LeaseRequest(image) if request is None else request
        try:
            self._request(future)
            return future.result(timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._timeout_error(timeout) from None
            raise

    def acquire_free(self, image: str | None = None) -> Lease | None:
        """Lease a slot if one is free and no caller waits for the image; None otherwise.

        Raises:
            PoolClosedError: If the pool is closed.
        """
        self._check_owner()
        with self._lock:
            if self._closing.is_set():
                raise PoolClosedError
            lease = self._lease_free(image)
            self._fill()
            return lease

    async def acquire_async(self, *, timeout: float | None = None) -> Lease:
        """Lease a slot without blocking the event loop; see ``acquire``."""
        timeout = self.acquire_timeout if timeout is None else timeout
        self._check_owner()
        future = LeaseRequest()
        try:
            self._request(future)
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._timeout_error(timeout) from None
            raise

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

    def check_image(self, image: str) -> None:
        """Raise if the pool cannot lease a sandbox of an image.

        Raises:
            ConfigurationError: If its sandboxes have no images, or are servers that have one already.
        """
        if self._servers is not None:
            message = f"The servers of a pool have their image already, got image={image!r}: make a pool for each image"
            raise ConfigurationError(message)
        replace(self.config, image=image)

    @property
    def is_usable(self) -> bool:
        """Whether the pool is open, and belongs to this process instead of one that it was forked from."""
        return os.getpid() == self._owner and not self._closing.is_set()

    def close(self) -> None:
        """Remove all sandboxes, including those in use; waiting callers get a ``PoolClosedError``."""
        self._close(wait=True)

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

    # The interface of leases.

    def _begin_episode_in(self, member: PooledMember) -> bool:
        """Count an episode; return False if the sandbox is retired, or callers wait for servers that have been lost."""
        self._check_owner()
        with self._lock:
            if self._is_retired(member) or self.is_contended:
                return False
            self._count_episode(member)
            self._fill()
            return True

    def _return_full(self, lease: Lease, member: PooledMember) -> bool:
        """Free the slot of a lease, if other clients of the server have taken it; until the next check, it counts as full."""
        if member.base_url is None or os.getpid() != self._owner:
            return False
        with self._lock:
            member.leases.discard(lease)
            member.slots = member.busy
            self._assign()
        return True

    def _return_lease(self, lease: Lease, member: PooledMember, *, dead: bool) -> None:
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
        # Images of which no slot is free: the callers that come later wait behind the first.
        passed: set[str | None] = set()
        for future in list(self._waiting):
            if future.image in passed or future.done():
                continue
            if (member := self._best_member(future.image)) is None:
                passed.add(future.image)
                continue
            lease = Lease(self, member)
            try:
                future.set_result(lease)
            except InvalidStateError:
                # The caller has just given up.
                member.leases.discard(lease)
            else:
                self._count_episode(member)
        self._next_waiting()
        self._fill()
        self._changed.notify_all()

    def _next_waiting(self, image: str | None = None) -> LeaseRequest | None:
        """Return the caller that has waited longest and still waits, for an image if there is one."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        if image is None:
            return self._waiting[0] if self._waiting else None
        return next((future for future in self._waiting if future.image == image and not future.done()), None)

    def _lease_free(self, image: str | None) -> Lease | None:
        """Lease a slot if one is free, and no caller waits for the image."""
        is_wanted = any(future.image == image and not future.done() for future in self._waiting)
        member = None if is_wanted else self._best_member(image)
        if member is None:
            return None
        lease = Lease(self, member)
        self._count_episode(member)
        return lease

    def _best_member(self, image: str | None) -> PooledMember | None:
        """Return the sandbox of an image with the largest share of free slots; of equal ones, that with the most.

        Of thousands, it is the best of a random few: that spreads leases almost as evenly, in constant time.
        """
        if self._servers is None and self._available() <= 0:
            return None
        if self._servers is None or len(self._members) <= _CHOICES:
            return self._best_of([member for member in self._members if member.image == image])
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
        return self._servers is None

    def _is_retired(self, member: PooledMember) -> bool:
        return member.is_leaving or member.is_worn or (self.max_episodes is not None and member.episodes >= self.max_episodes)

    def _count_episode(self, member: PooledMember) -> None:
        member.episodes += 1
        member.used_at = time.monotonic()
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
        wanted = self._unserved() if self._servers is None else []
        self._make_way(wanted)
        for name in self._missing(wanted):
            start = object()
            if self._in_background(partial(self._start_one, start, name)):
                self._starts[start] = name

    def _missing(self, wanted: Sequence[str | None]) -> Sequence[str | None]:
        """Return the addresses of missing servers, or the image of each missing sandbox that the pool starts.

        A server that could not be used is missing again with the next health check.

        Args:
            wanted: Images of the sandboxes that callers wait for.
        """
        if self._servers is None:
            room = self.size - len(self._usable()) - len(self._starts)
            # Beyond what callers wait for, sandboxes have the image of the configuration.
            return [*wanted, *[None] * room][: max(room, 0)]
        if not self._may_retire and len(self._members) + len(self._starts) + len(self._not_retried) >= len(self._servers):
            return []
        known = {*self._starts.values(), *(member.base_url for member in self._members)}
        return [url for url in self._servers if url not in known and url not in self._not_retried]

    def _unserved(self) -> list[str | None]:
        """Return the image of each sandbox to start for waiting callers, in the order of their requests."""
        coming = Counter(self._starts.values())
        slots = {image: count * self.config.sessions for image, count in coming.items()}
        wanted: list[str | None] = []
        for future in self._waiting:
            if future.done():
                continue
            if not slots.get(future.image):
                wanted.append(future.image)
                slots[future.image] = self.config.sessions
            slots[future.image] -= 1
        return wanted

    def _make_way(self, wanted: Sequence[str | None]) -> None:
        """Retire sandboxes in favor of other images: those whose last episodes began first.

        Args:
            wanted: Images of the sandboxes that callers wait for.
        """
        room = max(self.size - len(self._usable()) - len(self._starts), 0)
        for image in wanted[room:]:
            others = [member for member in self._usable() if member.image != image]
            if others:
                member = min(others, key=lambda member: member.used_at)
                member.is_leaving = True
                if not member.busy:
                    self._replace(member, "recycled")

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
                target=_check_regularly,
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

    def _request(self, future: LeaseRequest) -> None:
        """Queue a request for a slot. Called without the lock."""
        if future.image is not None:
            self.check_image(future.image)
        if future.image == self.config.image:
            future.image = None
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

    def _withdraw(self, future: LeaseRequest) -> None:
        """Leave the queue, and release a lease granted at the last moment. Called without the lock."""
        if not future.cancel() and future.exception() is None:
            future.result().release()
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(future)

    def _open_one(self, name: str | None) -> PooledMember:
        """Start a sandbox of an image, or connect to a server. Called without the lock."""
        if self._servers is not None:
            assert name is not None
            return self._open_server(name)
        config = self.config if name is None else replace(self.config, image=name)
        return PooledMember(start_sandbox(config), self.config.sessions, image=name)

    def _open_server(self, base_url: str) -> PooledMember:
        # Before the session that checks the token, which would count.
        address = Address.of_url(base_url, token=self.config.token)
        slots = _slots_of(address, busy=0, timeout=min(_HEALTH_TIMEOUT, self.config.start_timeout))
        return PooledMember(start_remote(address, timeout=self.config.start_timeout), slots, base_url=base_url)

    def _start_one(self, start: object, name: str | None) -> None:
        """Start a sandbox of an image, or connect to a server, in a background thread. Called without the lock."""
        member = error = None
        began = time.monotonic()
        if not self._closing.is_set():
            try:
                member = self._open_one(name)
            except Exception as caught:  # noqa: BLE001 - the waiting caller gets it
                error = caught
        with self._lock:
            self._starts.pop(start, None)
            if member is not None and not self._closing.is_set() and self._is_wanted(name):
                self._counts["started"] += 1
                self._counts.start_times.add(time.monotonic() - began)
                self._members.append(member)
                self._roomy.add(member)
                if self._servers is not None and name is not None:
                    self._unreachable.pop(name, None)
                self._assign()
                return
            if error is not None:
                self._counts["failed"] += 1
            if error is not None and self._servers is not None and name is not None:
                self._on_unreachable(name, error)
            elif error is not None and name is not None:
                self._fail_image(name, error)
            elif error is not None:
                self._error = error
                # The same configuration would be refused again: only the next call of a user retries.
                self._is_refused = isinstance(error, ConfigurationError)
                self._log_failure(error)
            self._changed.notify_all()
        if member is not None:
            member.sandbox.close()

    def _is_wanted(self, name: str | None) -> bool:
        return len(self._usable()) < self.size if self._servers is None else name in self._servers

    def _fail_image(self, image: str, error: Exception) -> None:
        """Raise the error in all callers that wait for an image: their sandboxes would fail, too."""
        while (future := self._next_waiting(image)) is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
        self._assign()

    def _log_failure(self, error: Exception) -> None:
        """Raise the error in the caller that has waited longest, and start another sandbox for the others.

        If the configuration was refused, raise it in all of them.
        """
        waiting = [future for future in self._waiting if future.image is None and not future.done()]
        if not waiting:
            _log.warning("a sandbox of the pool did not start: %s", error)
        for future in waiting if self._is_refused else waiting[:1]:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
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
        timeout = min(_HEALTH_TIMEOUT, self.config.idle_timeout / 2 / _MAX_FAILED_CHECKS)
        # Sandboxes in use are checked, too, which keeps them from ending by themselves; in parallel, as dead ones time out.
        with ThreadPoolExecutor(_PARALLEL_CHECKS) as threads:
            healthy = list(threads.map(partial(_check, timeout=timeout), members))
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


class PooledSandbox(ManagedSandbox):
    """A sandbox that is leased from a pool.

    Args:
        pool: The pool.
        config: Its configuration, with the image of the sandbox.
    """

    def __init__(self, pool: SandboxPool, config: SandboxConfig) -> None:
        super().__init__(config)
        self._pool = pool
        self._image = None if config.image == pool.config.image else config.image
        self._lease: Lease | None = None
        self._request: LeaseRequest | None = None
        self._is_retired = False
        self._obtaining = threading.Lock()

    @property
    def sandbox(self) -> Sandbox | None:
        lease = self._lease
        return lease.sandbox if lease is not None else None

    @property
    def may_lose_servers(self) -> bool:
        return self._pool.uses_servers

    @property
    def _attempts(self) -> int:
        # Other sandboxes of the pool may have died together with the first.
        return self._pool.size + 1

    def obtain(self, *, canceled: threading.Event | None = None) -> Sandbox:
        # One thread at a time: a full pool has no second lease.
        with self._obtaining:
            lease = self._valid_lease()
            if lease is None:
                request = self._request = LeaseRequest(self._image)
                if canceled is not None and canceled.is_set():
                    request.cancel()
                lease = self._keep(self._pool.acquire(request=request))
            return lease.sandbox

    def stop_waiting(self) -> None:
        request = self._request
        if request is not None:
            request.cancel()

    def obtain_free(self) -> Sandbox | None:
        """Return the sandbox, dead or alive, or lease one that is free; None if there is none."""
        with self._obtaining:
            lease = self._valid_lease() or self._pool.acquire_free(self._image)
            return None if lease is None else self._keep(lease).sandbox

    def give_up(self, sandbox: Sandbox) -> None:
        with self._lock:
            lease = self._lease
            if lease is None or lease.sandbox is not sandbox:
                return
            self._lease = None
        lease.release(dead=True)

    def leave_full(self) -> bool:
        if self._lease is None or not self._lease.release_full():
            return False
        self._lease = None
        return True

    def begin_episode(self) -> bool:
        # The lease is released after its session has ended, when the next sandbox is obtained.
        lease = self._lease
        self._is_retired = lease is None or not lease.begin_episode()
        return not self._is_retired

    def _valid_lease(self) -> Lease | None:
        lease = self._lease
        if self._is_retired or (lease is not None and lease.sandbox.is_closed):
            self._release()
        with self._lock:
            # Graders close their slots while they are idle.
            self._closed = False
            return self._lease

    def _keep(self, lease: Lease) -> Lease:
        with self._lock:
            if not self._closed:
                self._lease = lease
                return lease
        # It was closed while it waited.
        lease.release()
        raise SandboxStartError(CLOSED_ENVIRONMENT)

    def _release(self) -> None:
        self._is_retired = False
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _remove(self) -> None:
        with self._lock:
            self._closed = True
        self._release()


def managed_sandbox(pool: SandboxPool | None, config: SandboxConfig) -> ManagedSandbox:
    """Return a sandbox that is leased from the pool, or started if there is no pool.

    Args:
        pool: The pool.
        config: Its configuration, or that of a sandbox without a pool; the image may be another one.
    """
    return ManagedSandbox(config) if pool is None else PooledSandbox(pool, config)


def resolve_config(
    pool: SandboxPool | None,
    config: SandboxConfig | Mapping[str, Any] | None,
    sandbox_options: Mapping[str, Any],
    *,
    backend: str | None = None,
) -> SandboxConfig:
    """Return the configuration of an environment's sandbox, which is the pool's if there is one.

    Args:
        pool: The pool.
        config: The complete configuration.
        sandbox_options: The configuration as single options.
        backend: Default backend of a sandbox without a pool; the configuration's if None.

    Raises:
        ConfigurationError: If an option is invalid, or combined with a pool.
    """
    if pool is None:
        own = sandbox_config(config, sandbox_options)
        return own if backend is None else replace(own, backend=backend)
    if not isinstance(pool, SandboxPool):
        message = f"Expected pool= to be a SandboxPool, got {pool!r}"
        raise ConfigurationError(message)
    if config is not None or sandbox_options:
        names = ["config", *sandbox_options] if config is not None else list(sandbox_options)
        message = f"The sandboxes of a pool are configured by the pool: pass {', '.join(names)} to SandboxPool instead"
        raise ConfigurationError(message)
    return pool.config


def _check(member: PooledMember, *, timeout: float) -> bool:
    """Return whether a sandbox answers; update whether it is worn, or the slots of a server that is not the pool's own.

    A single timeout may only mean that it is busy.
    """
    sandbox = member.sandbox
    for _ in range(_MAX_FAILED_CHECKS):
        try:
            report = sandbox.health(timeout=timeout)
        except CodingGymError:
            continue
        if report["status"] == "healthy":
            if isinstance(sandbox, RemoteSandbox):
                with contextlib.suppress(ProtocolError):
                    member.slots = _slots_in(report, sandbox.address, busy=len(sandbox.open_sessions))
            elif report.get("worn") and not member.is_worn:
                _log.info("a sandbox of the pool is replaced after its last episodes: %s", report["worn"])
                member.is_worn = True
            return True
    return False


def _slots_of(address: Address, *, busy: int, timeout: float) -> int:
    """Return the number of sessions that a server admits, without those of other clients.

    Args:
        address: The server.
        busy: Number of its open sessions that belong to the pool.
        timeout: Timeout in seconds.

    Raises:
        TransportError: If it does not answer in time.
        ProtocolError: If it does not report its sessions.
    """
    # Pools that start their sandboxes ask none.
    from coding_gym.client.http import get_json

    return _slots_in(get_json(address, "/health", timeout=timeout), address, busy=busy)


def _slots_in(report: Any, address: Address, *, busy: int) -> int:
    try:
        return int(report["max_sessions"]) - max(int(report["active_sessions"]) - busy, 0)
    except (KeyError, TypeError):
        message = f"{address} does not report its number of sessions: update coding_gym there"
        raise ProtocolError(message) from None


def _check_regularly(reference: weakref.ref[SandboxPool], closing: threading.Event, interval: float) -> None:
    """Check a pool at intervals, until it is closed or garbage collected."""
    while not closing.wait(interval):
        pool = reference()
        if pool is None:
            return
        # No new threads can be started while the interpreter shuts down.
        with contextlib.suppress(RuntimeError):
            pool.check_health()
        del pool
