"""Concurrent execution of episodes in threads, each with its own environment."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym

from coding_gym.datasets.details import EpisodeDetails
from coding_gym.datasets.episode import Episode
from coding_gym.datasets.policies.base import Policy
from coding_gym.datasets.rollout import EpisodePlan, InfrastructureFault, PolicyFault, run_episode
from coding_gym.errors import DatasetError, PolicyError

__all__ = ["EpisodeRunner"]

_PAUSE_SECONDS = 0.05
_MAX_PAUSE = 2.0


class EpisodeRunner:
    """Episode runner. It uses threads rather than an event loop to support any environment, and policies that block.

    Args:
        make: Returns a new environment.
        policy: Policy that chooses the actions.
        sessions: Maximum number of concurrent episodes.
        max_steps: Number of actions after which an episode is truncated.
        retries: Maximum number of retries of an episode after infrastructure errors.
        most_policy_errors: Number of episodes with policy errors after which no further episodes begin.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        policy: Policy,
        *,
        sessions: int,
        max_steps: int,
        retries: int = 5,
        most_policy_errors: int = 1,
    ) -> None:
        self._make = make
        self._policy = policy
        self._sessions = sessions
        self._max_steps = max_steps
        self._retries = retries
        self._most_policy_errors = most_policy_errors
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._is_interrupted = False
        self._policy_errors: dict[int, BaseException] = {}
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(
        self,
        plans: Iterable[EpisodePlan],
        *,
        on_episode: Callable[[Episode, EpisodeDetails], object],
        on_fault: Callable[[int, str], object],
    ) -> None:
        """Run all episodes. After a fatal error, no further episodes begin, but those in progress are completed.

        Args:
            plans: Plans of the episodes.
            on_episode: Called with each completed episode and its details, from several threads.
            on_fault: Called after each infrastructure error, from several threads, with the episode's index and the reason.

        Raises:
            PolicyError: If the policy raises or returns an invalid action.
            DatasetError: If the sandboxes of an episode fail more than ``retries`` times.
            CodingGymError: If an environment cannot be made, or an episode cannot be recorded.
        """
        work = functools.partial(self._work, iter(plans), on_episode, on_fault)
        # Daemon threads, so that an interrupted process does not wait at exit for a policy that is waiting for its model.
        threads = [threading.Thread(target=work, name="coding_gym-collect", daemon=True) for _ in range(self._sessions)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            # Not a failure of the sandboxes, which the caller ends now.
            self._is_interrupted = True
            raise
        finally:
            self._stop.set()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._error is not None:
            raise self._error
        if self._policy_errors:
            raise PolicyError(self._policy_errors) from next(iter(self._policy_errors.values()))

    def _work(
        self,
        plans: Iterator[EpisodePlan],
        on_episode: Callable[[Episode, EpisodeDetails], object],
        on_fault: Callable[[int, str], object],
    ) -> None:
        with _EnvHolder(self._make) as holder:
            try:
                while (plan := self._next(plans)) is not None:
                    try:
                        on_episode(*self._run(holder, plan, on_fault))
                    except PolicyFault as fault:
                        self._record_policy_error(plan, fault.__cause__ or fault)
            except BaseException as error:  # noqa: BLE001 - re-raised by run
                with self._lock:
                    # Keep the first error: later ones may be its consequences.
                    self._error = self._error or error
                self._stop.set()

    def _next(self, plans: Iterator[EpisodePlan]) -> EpisodePlan | None:
        with self._lock:
            return None if self._stop.is_set() else next(plans, None)

    def _run(
        self, holder: _EnvHolder, plan: EpisodePlan, on_fault: Callable[[int, str], object]
    ) -> tuple[Episode, EpisodeDetails]:
        faults = 0
        while True:
            try:
                return run_episode(holder.env, plan, self._policy, max_steps=self._max_steps, wait=self._wait)
            except InfrastructureFault as fault:
                if self._is_interrupted:
                    raise
                on_fault(plan.index, str(fault))
                holder.renew()
                faults += 1
                if faults > self._retries or self._stop.is_set():
                    message = (
                        f"The sandbox of episode {plan.index} failed {faults} times, last: {fault}. "
                        "All completed episodes are written; repeat the call to continue."
                    )
                    raise DatasetError(message) from fault
            time.sleep(min(_PAUSE_SECONDS * 2**faults, _MAX_PAUSE))

    def _record_policy_error(self, plan: EpisodePlan, error: BaseException) -> None:
        with self._lock:
            self._policy_errors[plan.index] = error
            if len(self._policy_errors) >= self._most_policy_errors:
                self._stop.set()

    def _wait(self, awaitable: Awaitable[Any]) -> Any:
        """Wait for an awaitable in the event loop that all episodes share, so that they can share clients and connections."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="coding_gym-policy", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop).result()


class _EnvHolder:
    """Lazily created environment of one thread."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]]) -> None:
        self._make = make
        self._env: gym.Env[Any, Any] | None = None

    @property
    def env(self) -> gym.Env[Any, Any]:
        if self._env is None:
            self._env = self._make()
        return self._env

    def renew(self) -> None:
        """Close the environment, so that the next episode begins in a new one."""
        env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()

    def __enter__(self) -> _EnvHolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.renew()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.closing(loop):
        loop.run_forever()


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
