"""Running many episodes at a time, each in a thread with an environment of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym

from coding_gym.datasets.episodes import InfrastructureFault, Plan, PolicyFault, run_episode
from coding_gym.datasets.policies import Policy
from coding_gym.datasets.records import Episode
from coding_gym.errors import DatasetError, PolicyError

__all__ = ["Crew"]

_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE = 2.0


class Crew:
    """Runs episodes. Threads rather than an event loop: any environment will do, and a policy that blocks holds up nobody.

    Args:
        make: Returns a new environment.
        policy: What chooses the actions.
        sessions: How many episodes to run at a time.
        max_steps: Actions after which an episode is truncated.
        retries: How often an episode is tried again whose sandbox failed.
        most_policy_errors: In how many episodes the policy may raise before no others begin.
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
        self._policy_errors: dict[int, BaseException] = {}
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(
        self, plans: Iterable[Plan], *, on_episode: Callable[[Episode], object], on_fault: Callable[[int, str], object]
    ) -> None:
        """Run episodes until all have ended, or one cannot be run; then those that have begun are run to their ends.

        Args:
            plans: The episodes.
            on_episode: Told of each that has ended, by several threads.
            on_fault: Likewise, of each whose sandbox failed: its number, and how.

        Raises:
            PolicyError: The policy raised.
            DatasetError: Sandboxes failed more often than ``retries``.
            CodingGymError: An environment cannot be made, or an episode not be kept.
        """
        work = functools.partial(self._work, iter(plans), on_episode, on_fault)
        # Daemons: when this is interrupted, nobody waits for a policy that waits for its model.
        threads = [threading.Thread(target=work, name="coding_gym-collect", daemon=True) for _ in range(self._sessions)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._stop.set()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._error is not None:
            raise self._error
        if self._policy_errors:
            raise PolicyError(self._policy_errors) from next(iter(self._policy_errors.values()))

    def _work(
        self, plans: Iterator[Plan], on_episode: Callable[[Episode], object], on_fault: Callable[[int, str], object]
    ) -> None:
        with _Place(self._make) as place:
            try:
                while (plan := self._next(plans)) is not None:
                    try:
                        on_episode(self._run(place, plan, on_fault))
                    except PolicyFault as fault:
                        self._take_note_of(plan, fault.__cause__ or fault)
            except BaseException as error:  # noqa: BLE001 - whoever called run is told
                with self._lock:
                    # The first one: what follows may be its consequence.
                    self._error = self._error or error
                self._stop.set()

    def _next(self, plans: Iterator[Plan]) -> Plan | None:
        with self._lock:
            return None if self._stop.is_set() else next(plans, None)

    def _run(self, place: _Place, plan: Plan, on_fault: Callable[[int, str], object]) -> Episode:
        faults = 0
        while True:
            try:
                return run_episode(place.env, plan, self._policy, max_steps=self._max_steps, wait=self._wait)
            except InfrastructureFault as fault:
                on_fault(plan.index, str(fault))
                place.renew()
                faults += 1
                if faults > self._retries or self._stop.is_set():
                    message = (
                        f"The sandbox of episode {plan.index} failed {faults} times, last: {fault}. "
                        "All episodes that have ended are written; run the same again to go on."
                    )
                    raise DatasetError(message) from fault
            time.sleep(min(_PAUSE_SECONDS * 2**faults, _LONGEST_PAUSE))

    def _take_note_of(self, plan: Plan, error: BaseException) -> None:
        with self._lock:
            self._policy_errors[plan.index] = error
            if len(self._policy_errors) >= self._most_policy_errors:
                self._stop.set()

    def _wait(self, awaitable: Awaitable[Any]) -> Any:
        """Wait for a coroutine, in the one event loop that they all share, as do the connections of their clients."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="coding_gym-policy", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop).result()


class _Place:
    """The environment of one thread, made when it is wanted."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]]) -> None:
        self._make = make
        self._env: gym.Env[Any, Any] | None = None

    @property
    def env(self) -> gym.Env[Any, Any]:
        if self._env is None:
            self._env = self._make()
        return self._env

    def renew(self) -> None:
        """Have the next episode begin in a new environment."""
        env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.renew()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.closing(loop):
        loop.run_forever()


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
