"""``SandboxPool``: warm sandboxes for many environments, replaced as they die or have served their time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any

from coding_gym.config import SandboxConfig, sandbox_config
from coding_gym.errors import CodingGymError, ConfigurationError, PoolClosedError, PoolTimeoutError
from coding_gym.pool.stats import PoolStats
from coding_gym.providers import Sandbox, start_sandbox
from coding_gym.settings import check_count

__all__ = ["Lease", "SandboxPool"]

_log = logging.getLogger("coding_gym")

_PARALLEL_STARTS = 8
_PARALLEL_CHECKS = 8
_HEALTH_TIMEOUT = 2.0
_CHECKS_BEFORE_LOST = 2
_MOST_SECONDS_BETWEEN_CHECKS = 5.0
_CHECKS_IN_IDLE_TIMEOUT = 4


class _Member:
    """A sandbox of a pool."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        # Weak, for a lease that is lost, to Ctrl-C between two lines for example, takes up no place.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.episodes = 0

    @property
    def busy(self) -> int:
        return len(self.leases)


class Lease:
    """A place in a sandbox of a pool, taken until ``release``, or until nobody holds the lease any more.

    As a context manager it is released at the end of the block.
    """

    def __init__(self, pool: SandboxPool, member: _Member) -> None:
        self._pool = pool
        self._member = member
        self._released = False
        member.leases.add(self)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, in which one session may be opened."""
        return self._member.sandbox

    def begin_episode(self) -> bool:
        """Count another episode; says whether the sandbox may have it, else release the place and acquire another."""
        return self._pool._begin_episode(self._member)

    def release(self, *, dead: bool = False) -> None:
        """Give the place back; harmless when done already.

        Args:
            dead: Whether the sandbox does not answer and is to be replaced.
        """
        if not self._released:
            self._released = True
            self._pool._take_back(self, self._member, dead=dead)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class SandboxPool:
    """Keeps sandboxes warm, hands out places in them in the order in which they were asked for, and replaces what has died.

    Each sandbox has as many places as ``sessions``, one unless told otherwise. What a place is used for, an episode, begins in
    a fresh interpreter and an empty workspace whoever had it before. Use it as a context manager, or call ``close``.

    Its methods may be called from any thread, but not in a fork of the process that made it.

    Args:
        size: How many sandboxes to keep. No more than ``size`` times ``sessions`` places are taken at a time, though there are
            more sandboxes while some are in their last episode.
        max_episodes: Episodes after which a sandbox is replaced by a new one, which comes up during the last of them; None for
            never.
        acquire_timeout: Seconds that ``acquire`` waits for a place unless it is told otherwise; None for ever.
        config: The sandboxes, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``sessions=8`` ...

    Raises:
        ConfigurationError: A setting cannot be.

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
        **sandbox_options: Any,
    ) -> None:
        check_count("size", size, 1)
        if max_episodes is not None:
            check_count("max_episodes", max_episodes, 1)
        seconds: Any = acquire_timeout
        if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
            message = f"Expected acquire_timeout= to be a number of seconds or None, got {seconds!r}"
            raise ConfigurationError(message)
        self.config = sandbox_config(config, sandbox_options)
        self.size = size
        self.max_episodes = max_episodes
        self.acquire_timeout = acquire_timeout
        self._owner = os.getpid()
        # Not the condition itself: Ctrl-C may come between its taking the lock and the block that lets go of it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._members: list[_Member] = []
        self._waiting: deque[Future[Lease]] = deque()
        self._starts: set[object] = set()
        self._error: Exception | None = None
        self._counts = dict.fromkeys(("waits", "started", "recycled", "lost", "failed", "episodes"), 0)
        self._wait_seconds = 0.0
        self._workers: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    def start(self, *, timeout: float | None = None) -> None:
        """Start all sandboxes and wait until they are ready; harmless when they are.

        Args:
            timeout: Seconds to wait; None for as long as they may take.

        Raises:
            ProviderError: One cannot be had.
            PoolTimeoutError: They are not ready in time.
            PoolClosedError: The pool is closed, or was meanwhile.
        """
        self._check_owner()
        with self._lock:
            self._error = None
            self._fill()
            if not self._changed.wait_for(lambda: self._error or self._closing.is_set() or not self._starts, timeout):
                message = f"The sandboxes were not ready within {timeout:g} s: {self._describe()}"
                raise PoolTimeoutError(message)
            if self._closing.is_set():
                raise PoolClosedError
            if self._error is not None:
                raise self._error

    def acquire(self, *, timeout: float | None = None) -> Lease:
        """Take a place, waiting for one if need be: first come, first served.

        Args:
            timeout: Seconds to wait; ``acquire_timeout`` if None.

        Raises:
            PoolTimeoutError: There was none in time.
            PoolClosedError: The pool is closed, or was meanwhile.
            ProviderError: A sandbox cannot be had.
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
                raise self._no_place(timeout) from None
            raise

    async def acquire_async(self, *, timeout: float | None = None) -> Lease:
        """Do what ``acquire`` does, without blocking the event loop."""
        timeout = self.acquire_timeout if timeout is None else timeout
        self._check_owner()
        future: Future[Lease] = Future()
        try:
            self._request(future)
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._no_place(timeout) from None
            raise

    def release(self, lease: Lease) -> None:
        """Give a place back; the same as ``lease.release()``."""
        lease.release()

    @property
    def stats(self) -> PoolStats:
        """The figures of the pool now."""
        with self._lock:
            places = self.config.sessions
            free = sum(places - member.busy for member in self._usable())
            return PoolStats(
                idle=max(min(free, self._takeable()), 0),
                busy=sum(member.busy for member in self._members),
                starting=len(self._starts) * places,
                waiting=sum(not future.done() for future in self._waiting),
                wait_seconds=self._wait_seconds,
                **self._counts,
            )

    @property
    def idle(self) -> int:
        """Places that wait to be taken."""
        return self.stats.idle

    @property
    def busy(self) -> int:
        """Places that are taken."""
        return self.stats.busy

    @property
    def starting(self) -> int:
        """Places of sandboxes that are coming up."""
        return self.stats.starting

    def close(self) -> None:
        """Remove all sandboxes, also those in use; whoever waits for a place gets a ``PoolClosedError``."""
        self._close(wait=True)

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
            # What is coming up is removed by whoever started it.
            workers.shutdown(wait=wait)
        with self._lock:
            members, self._members = self._members, []
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
        # Without waiting, for this may be one of the threads; a half-built object has none.
        with contextlib.suppress(Exception):
            self._close(wait=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> SandboxPool:
        # The copy of an environment, or of its specification, takes its places from the same pool.
        return self

    def __reduce__(self) -> Any:
        message = "A SandboxPool belongs to the process that made it: make one there, or leave pool= out"
        raise TypeError(message)

    # What a lease does.

    def _begin_episode(self, member: _Member) -> bool:
        self._check_owner()
        with self._lock:
            if member not in self._members or self._is_spent(member):
                return False
            self._count_episode(member)
            self._fill()
            return True

    def _take_back(self, lease: Lease, member: _Member, *, dead: bool) -> None:
        if os.getpid() != self._owner:
            # The lock may have been taken when the process forked.
            return
        with self._lock:
            member.leases.discard(lease)
            if dead and member in self._members:
                self._replace(member, "lost")
            self._hand_out()

    def _check_owner(self) -> None:
        """Without the lock, which in a fork may be taken for ever.

        Raises:
            ConfigurationError: This is a fork of the process that made the pool.
        """
        if os.getpid() != self._owner:
            message = "This pool was made by another process, of which this is a fork: make one here"
            raise ConfigurationError(message)

    # Everything below is called with the lock held, unless it says otherwise. Ctrl-C, or a collection that takes a place back,
    # may come between any two lines.

    def _hand_out(self) -> None:
        """Give free places to those who wait, longest first, and see to it that there will be more."""
        for used in [member for member in self._members if self._is_spent(member) and not member.busy]:
            self._replace(used, "recycled")
        while (future := self._next_waiting()) is not None and (member := self._best_member()) is not None:
            lease = Lease(self, member)
            try:
                future.set_result(lease)
            except InvalidStateError:
                # It was given up just now.
                member.leases.discard(lease)
            else:
                self._count_episode(member)
        self._fill()
        self._changed.notify_all()

    def _next_waiting(self) -> Future[Lease] | None:
        """Return whoever has waited longest and still waits."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _best_member(self) -> _Member | None:
        """Return the sandbox that has the most free places."""
        if self._takeable() <= 0:
            return None
        free = [member for member in self._usable() if member.busy < self.config.sessions]
        return min(free, key=lambda member: member.busy, default=None)

    def _takeable(self) -> int:
        """Return how many more places may be taken: a sandbox in its last episode keeps its place in the pool until it ends."""
        return self.size * self.config.sessions - sum(member.busy for member in self._members)

    def _usable(self) -> list[_Member]:
        return [member for member in self._members if not self._is_spent(member)]

    def _is_spent(self, member: _Member) -> bool:
        return self.max_episodes is not None and member.episodes >= self.max_episodes

    def _count_episode(self, member: _Member) -> None:
        member.episodes += 1
        self._counts["episodes"] += 1

    def _replace(self, member: _Member, why: str) -> None:
        # When the pool closes, it closes this one, too.
        if self._in_background(member.sandbox.close):
            self._counts[why] += 1
            self._members.remove(member)

    def _fill(self) -> None:
        """Start what is missing; a sandbox in its last episodes does not count, for whoever is in it may stay for long."""
        for _ in range(self.size - len(self._usable()) - len(self._starts)):
            start = object()
            if self._in_background(partial(self._start_one, start)):
                self._starts.add(start)

    def _in_background(self, work: Callable[[], object]) -> bool:
        """Have a thread do something; says whether one will."""
        if self._closing.is_set() or os.getpid() != self._owner:
            return False
        if self._workers is None:
            self._workers = ThreadPoolExecutor(min(self.size, _PARALLEL_STARTS) + 1, thread_name_prefix="coding_gym_pool")
            # Often enough for an idle sandbox not to think that it has been forgotten.
            interval = min(self.config.idle_timeout / _CHECKS_IN_IDLE_TIMEOUT, _MOST_SECONDS_BETWEEN_CHECKS)
            threading.Thread(
                target=_look_after,
                args=(weakref.ref(self), self._closing, interval),
                name="coding_gym_pool_health",
                daemon=True,
            ).start()
        try:
            self._workers.submit(work)
        except RuntimeError:
            # The interpreter is on its way out.
            return False
        return True

    def _request(self, future: Future[Lease]) -> None:
        """Without the lock: queue up for a place."""
        asked_at = time.monotonic()
        with self._lock:
            if self._closing.is_set():
                raise PoolClosedError
            self._waiting.append(future)
            self._hand_out()
            if not future.done():
                self._counts["waits"] += 1
                future.add_done_callback(lambda _: self._count_wait(time.monotonic() - asked_at))

    def _count_wait(self, seconds: float) -> None:
        with self._lock:
            self._wait_seconds += seconds

    def _withdraw(self, future: Future[Lease]) -> None:
        """Without the lock: leave the queue, and give back what came at the last moment."""
        if not future.cancel() and future.exception() is None:
            future.result().release()
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(future)

    def _start_one(self, start: object) -> None:
        """Without the lock, in a thread: start a sandbox."""
        sandbox = error = None
        if not self._closing.is_set():
            try:
                sandbox = start_sandbox(self.config)
            except Exception as caught:  # noqa: BLE001 - whoever waits for it is told
                error = caught
        with self._lock:
            self._starts.discard(start)
            if sandbox is not None and not self._closing.is_set() and len(self._usable()) < self.size:
                self._counts["started"] += 1
                self._members.append(_Member(sandbox))
                self._hand_out()
                return
            if error is not None:
                self._counts["failed"] += 1
                self._error = error
                self._tell_of(error)
            self._changed.notify_all()
        if sandbox is not None:
            sandbox.close()

    def _tell_of(self, error: Exception) -> None:
        """Tell whoever has waited longest that a sandbox cannot be had; for the others, and for later, another is tried."""
        if (future := self._next_waiting()) is None:
            _log.warning("a sandbox of the pool did not come up: %s", error)
            return
        with contextlib.suppress(InvalidStateError):
            future.set_exception(error)
        if self._next_waiting() is not None:
            self._fill()

    def _check_up(self) -> None:
        """Without the lock: find out which idle sandboxes have died, and try again what has failed."""
        with self._lock:
            members = list(self._members)
        # However long the dead take, the others are asked again before they think that they have been forgotten.
        timeout = min(_HEALTH_TIMEOUT, self.config.idle_timeout / 2 / _CHECKS_BEFORE_LOST)
        # Also those in use: to be asked keeps a sandbox from ending by itself. All at once, for the dead take their time.
        with ThreadPoolExecutor(_PARALLEL_CHECKS) as threads:
            healthy = list(threads.map(partial(_answers, timeout=timeout), members))
        with self._lock:
            for member, is_healthy in zip(members, healthy, strict=True):
                if not is_healthy and not member.busy and member in self._members:
                    self._replace(member, "lost")
            self._hand_out()

    def _no_place(self, timeout: float | None) -> PoolTimeoutError:
        return PoolTimeoutError(
            f"No sandbox was free within {timeout or 0:g} s. {self._describe()}. Raise size= or the timeout?"
        )

    def _describe(self) -> str:
        stats = self.stats
        return f"{stats.idle} places are idle, {stats.busy} busy, {stats.starting} starting; {stats.waiting} callers wait"


def _answers(member: _Member, *, timeout: float) -> bool:
    """Say whether a sandbox works: one that is late once may have a busy neighbour."""
    return any(member.sandbox.is_healthy(timeout=timeout) for _ in range(_CHECKS_BEFORE_LOST))


def _look_after(reference: weakref.ref[SandboxPool], closing: threading.Event, interval: float) -> None:
    """Check a pool at intervals, until it is closed or collected."""
    while not closing.wait(interval):
        pool = reference()
        if pool is None:
            return
        # When the interpreter is on its way out, there are no new threads.
        with contextlib.suppress(RuntimeError):
            pool._check_up()
        del pool
