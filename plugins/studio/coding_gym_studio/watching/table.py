"""``SessionTable``: the environments of a process, and figures of them."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections import deque

from coding_gym.telemetry import Identity, observed_pools
from coding_gym_studio.watching.messages import Changes, PoolRow, Summary
from coding_gym_studio.watching.session import LARGEST_ALLOWANCE, Shared, Totals, WatchedSession

__all__ = ["SessionTable"]

_SAMPLES = 121
_QUANTILES = 40
_RATE_SECONDS = 3
_MINUTE = 60
_CLOSED_SECONDS = 10.0
_MOST_CLOSED = 256
_KEPT_CHARACTERS = 32_000_000


class SessionTable:
    """The sessions of a process. Thread-safe.

    Closed sessions stay for some seconds, or until there are others, so that the last ones can be seen after the trainer's end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[int, WatchedSession] = {}
        self._ids = itertools.count(1)
        self._single = itertools.count()
        self._shared = Shared()
        self._totals = Totals()
        self._samples: deque[tuple[int, dict[str, int]]] = deque(maxlen=_SAMPLES)

    def opened(self, identity: Identity) -> WatchedSession:
        """Add a session."""
        with self._lock:
            index = next(self._single) if identity.position is None else identity.position
            session = WatchedSession(next(self._ids), identity, index, shared=self._shared)
            self._sessions[session.id] = session
            self._allow()
        return session

    def get(self, id: int) -> WatchedSession | None:
        """Return a session, None if it is gone."""
        return self._sessions.get(id)

    def sample(self) -> None:
        """Sum up the sessions, and remove those that have been closed for long. To be called once a second."""
        with self._lock:
            self._count()
            self._remove_closed()
            self._samples.append((self._totals.steps, self._totals.outcomes.copy()))

    def changes(self, known: dict[int, int]) -> Changes:
        """Return what has changed.

        Args:
            known: The version of each session that is known already, which is updated.
        """
        with self._lock:
            sessions = list(self._sessions.values())
        rows = []
        for session in sessions:
            version = session.version
            if known.get(session.id) != version:
                known[session.id] = version
                rows.append(session.row())
        removed = []
        if len(known) > len(sessions):
            removed = list(known.keys() - {session.id for session in sessions})
            for id in removed:
                del known[id]
        return Changes(rows, removed, self.summary())

    def summary(self) -> Summary:
        """Return figures of the process."""
        with self._lock:
            self._count()
            totals = copy.copy(self._totals)
            outcomes = totals.outcomes.copy()
            samples = [*self._samples]
        steps = [count for count, _ in samples]
        before = samples[-_MINUTE - 1][1] if len(samples) > _MINUTE else {}
        return Summary(
            now=time.time(),
            rate=_rate(steps[-_RATE_SECONDS - 1 :]),
            minute_rate=_rate(_from_first_step(steps[-_MINUTE - 1 :])),
            rates=[later - earlier for earlier, later in itertools.pairwise(steps)],
            steps=totals.steps,
            episodes=totals.episodes,
            outcomes=outcomes,
            minute_outcomes={name: recent for name, count in outcomes.items() if (recent := count - before.get(name, 0))},
            step_seconds=_distribution(self._shared.steps),
            reset_seconds=_distribution(self._shared.resets),
            wait_seconds=_distribution(self._shared.waits),
            waits=totals.waits,
            pools=_pools(),
        )

    def _count(self) -> None:
        """Add what sessions have done since the last call to the totals."""
        for session in self._sessions.values():
            session.count_into(self._totals)

    def _remove_closed(self) -> None:
        closed = [session for session in self._sessions.values() if session.is_closed]
        if not closed:
            return
        are_all = len(closed) == len(self._sessions)
        closed.sort(key=lambda session: session.closed_at)
        horizon = time.monotonic() - _CLOSED_SECONDS
        surplus = len(closed) - _MOST_CLOSED
        for position, session in enumerate(closed):
            if position < surplus or (session.closed_at < horizon and not are_all):
                del self._sessions[session.id]
        self._allow()

    def _allow(self) -> None:
        self._shared.allowance = min(_KEPT_CHARACTERS // max(len(self._sessions), 1), LARGEST_ALLOWANCE)


def _rate(steps: list[int]) -> float:
    return (steps[-1] - steps[0]) / (len(steps) - 1) if len(steps) > 1 else 0.0


def _from_first_step(steps: list[int]) -> list[int]:
    """Leave out the time before the first step, as of building an image."""
    first = next((position for position, count in enumerate(steps) if count), len(steps))
    return steps[max(first - 1, 0) :]


def _distribution(durations: deque[float]) -> list[float]:
    """Return a few of the durations in ascending order, with equal shares of the others between them, and the longest."""
    ordered = sorted(durations.copy())
    stride = max(len(ordered) // _QUANTILES, 1)
    return ordered[::-stride][::-1]


def _pools() -> list[PoolRow]:
    rows = []
    for pool in observed_pools():
        stats = pool.stats
        rows.append(PoolRow(**{name: getattr(stats, name) for name in PoolRow.__struct_fields__}))
    return rows
