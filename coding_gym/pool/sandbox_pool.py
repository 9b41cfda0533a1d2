"""``SandboxPool``: warm sandboxes for many environments, replaced as they die or have served their time."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from coding_gym.config import SandboxConfig, sandbox_config
from coding_gym.errors import CodingGymError, ConfigurationError, PoolClosedError, PoolTimeoutError
from coding_gym.pool.stats import PoolStats
from coding_gym.providers import Sandbox, start_sandbox

__all__ = ["Lease", "SandboxPool"]

_log = logging.getLogger("coding_gym")

_PARALLEL_STARTS = 8
_HEALTH_TIMEOUT = 2.0
_MOST_SECONDS_BETWEEN_CHECKS = 5.0
_CHECKS_IN_IDLE_TIMEOUT = 4


class _Member:
    """A sandbox of a pool."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.busy = 0
        self.episodes = 0


class Lease:
    """A place in a sandbox of a pool, taken until ``release``; as a context manager, until the end of the block."""

    def __init__(self, pool: SandboxPool, member: _Member) -> None:
        self._pool = pool
        self._member = member
        self._released = False

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
            self._pool._take_back(self._member, dead=dead)

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
        size: How many sandboxes to keep.
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
        for name, count in (("size", size), ("max_episodes", max_episodes)):
            if count is None and name == "max_episodes":
                continue
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                message = f"Expected {name}= to be a whole number of at least 1, got {count!r}"
                raise ConfigurationError(message)
        self.config = sandbox_config(config, sandbox_options)
        self.size = size
        self.max_episodes = max_episodes
        self.acquire_timeout = acquire_timeout
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._members: list[_Member] = []
        self._waiting: deque[Future[Lease]] = deque()
        self._starting = 0
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
        """
        with self._changed:
            self._error = None
            self._fill()
            if not self._changed.wait_for(lambda: self._error or self._closing.is_set() or not self._starting, timeout):
                message = f"The sandboxes were not ready within {timeout:g} s: {self._describe()}"
                raise PoolTimeoutError(message)
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
        future = self._request()
        try:
            return future.result(timeout)
        except BaseException as error:
            self._withdraw(future)
            if isinstance(error, TimeoutError) and not isinstance(error, CodingGymError):
                raise self._no_place(timeout) from None
            raise

    async def acquire_async(self, *, timeout: float | None = None) -> Lease:
        """Do what ``acquire`` does, without blocking the event loop."""
        timeout = self.acquire_timeout if timeout is None else timeout
        future = self._request()
        try:
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
        with self._changed:
            places = self.config.sessions
            return PoolStats(
                idle=sum(places - member.busy for member in self._usable()),
                busy=sum(member.busy for member in self._members),
                starting=self._starting * places,
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
        if os.getpid() != self._owner:
            return
        with self._changed:
            self._closing.set()
            waiting, self._waiting = self._waiting, deque()
            workers, self._workers = self._workers, None
            self._changed.notify_all()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(PoolClosedError())
        if workers is not None:
            # What is coming up is removed by whoever started it.
            workers.shutdown()
        with self._changed:
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

    def __deepcopy__(self, memo: dict[int, Any]) -> SandboxPool:
        # The copy of an environment, or of its specification, takes its places from the same pool.
        return self

    def __reduce__(self) -> Any:
        message = "A SandboxPool belongs to the process that made it: make one there, or leave pool= out"
        raise TypeError(message)

    # What a lease does.

    def _begin_episode(self, member: _Member) -> bool:
        with self._changed:
            if member not in self._members or self._is_spent(member):
                return False
            self._count_episode(member)
            self._fill()
            return True

    def _take_back(self, member: _Member, *, dead: bool) -> None:
        with self._changed:
            member.busy -= 1
            if member in self._members:
                if dead:
                    self._replace(member, "lost")
                elif self._is_spent(member) and member.busy == 0:
                    self._replace(member, "recycled")
            self._hand_out()

    # Everything below is called with the lock held, unless it says otherwise.

    def _hand_out(self) -> None:
        """Give free places to those who wait, longest first, and see to it that there will be more."""
        while self._waiting and (member := self._best_member()) is not None:
            future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                member.busy += 1
                self._count_episode(member)
                future.set_result(Lease(self, member))
        self._fill()
        self._changed.notify_all()

    def _best_member(self) -> _Member | None:
        """Return the sandbox that has the most free places."""
        free = [member for member in self._usable() if member.busy < self.config.sessions]
        return min(free, key=lambda member: member.busy, default=None)

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
        for _ in range(self.size - len(self._usable()) - self._starting):
            if self._in_background(self._start_one):
                self._starting += 1

    def _in_background(self, work: Callable[[], object]) -> bool:
        """Have a thread do something; says whether one will."""
        if self._closing.is_set() or os.getpid() != self._owner:
            return False
        if self._workers is None:
            self._workers = ThreadPoolExecutor(min(self.size, _PARALLEL_STARTS) + 1, thread_name_prefix="coding_gym_pool")
            threading.Thread(target=self._look_after, name="coding_gym_pool_health", daemon=True).start()
        try:
            self._workers.submit(work)
        except RuntimeError:
            # The interpreter is on its way out.
            return False
        return True

    def _request(self) -> Future[Lease]:
        """Without the lock: queue up for a place."""
        future: Future[Lease] = Future()
        if os.getpid() != self._owner:
            message = "This pool was made by another process, of which this is a fork: make one here"
            raise ConfigurationError(message)
        asked_at = time.monotonic()
        with self._changed:
            if self._closing.is_set():
                raise PoolClosedError
            self._waiting.append(future)
            self._hand_out()
            if not future.done():
                self._counts["waits"] += 1
                future.add_done_callback(lambda _: self._count_wait(time.monotonic() - asked_at))
        return future

    def _count_wait(self, seconds: float) -> None:
        self._wait_seconds += seconds

    def _withdraw(self, future: Future[Lease]) -> None:
        """Without the lock: leave the queue, and give back what came at the last moment."""
        if not future.cancel() and future.exception() is None:
            future.result().release()

    def _start_one(self) -> None:
        """Without the lock, in a thread: start a sandbox."""
        sandbox = error = None
        try:
            sandbox = start_sandbox(self.config)
        except Exception as caught:  # noqa: BLE001 - whoever waits for it is told
            error = caught
        with self._changed:
            self._starting -= 1
            if sandbox is not None and not self._closing.is_set():
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
        while self._waiting:
            future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
                break
        else:
            _log.warning("a sandbox of the pool did not come up: %s", error)
        if self._waiting:
            self._fill()

    def _look_after(self) -> None:
        """Without the lock, in a thread of its own: find out which idle sandboxes have died, and try again what has failed."""
        # Often enough for an idle sandbox not to think that it has been forgotten.
        interval = min(self.config.idle_timeout / _CHECKS_IN_IDLE_TIMEOUT, _MOST_SECONDS_BETWEEN_CHECKS)
        while not self._closing.wait(interval):
            with self._changed:
                idle = [member for member in self._members if member.busy == 0]
            for member in idle:
                if not member.sandbox.is_healthy(timeout=_HEALTH_TIMEOUT):
                    with self._changed:
                        if member in self._members and member.busy == 0:
                            self._replace(member, "lost")
            with self._changed:
                self._hand_out()

    def _no_place(self, timeout: float | None) -> PoolTimeoutError:
        return PoolTimeoutError(
            f"No sandbox was free within {timeout or 0:g} s. {self._describe()}. Raise size= or the timeout?"
        )

    def _describe(self) -> str:
        stats = self.stats
        return f"{stats.idle} places are idle, {stats.busy} busy, {stats.starting} starting; {stats.waiting} callers wait"
