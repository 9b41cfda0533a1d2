"""``Restoring``: the parts of a restore, a fork and a replay that do not wait for the sandbox."""

from __future__ import annotations

import contextlib
import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from gymnasium.utils import seeding

from coding_gym._validation import check_count
from coding_gym.envs.episode import EpisodeState, Info, Obs, RecordedStep
from coding_gym.envs.replay import ReplayReport, check_seed
from coding_gym.envs.snapshot import Snapshot
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym_server.protocol import MAX_FORKS, ObservationData, ResetOptions

__all__ = ["Restoring"]

_MAX_SEED = 2**32


class Restoring:
    """Base of environments with snapshots: what synchronous and asynchronous ones do between the sandbox's responses."""

    _episode: EpisodeState
    np_random: np.random.Generator

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """Give up the session because of an error."""

    @contextlib.contextmanager
    def _failing_with_connection(self) -> Iterator[None]:
        """Give up the session if its connection fails."""
        try:
            yield
        except TransportError as error:
            self._fail(error)
            raise

    def _record(self) -> Snapshot:
        """Return a snapshot that is only a record of the episode."""
        self._episode.check_begun()
        return Snapshot.of_record(self._episode.save())

    def _must_replay(self, snapshot: Snapshot, *, seed: int | None, replay: bool) -> bool:
        """Return whether a snapshot must be replayed.

        Raises:
            SnapshotError: If it was released, and ``replay`` is False.
            ConfigurationError: If there are both a seed and a replay.
        """
        if not replay:
            snapshot.check_usable()
            if not snapshot.is_record:
                return False
        check_seed(seed)
        return True

    def _load(self, episode: Mapping[str, Any]) -> None:
        """Go on from a saved state of the episode."""
        self._episode.load(episode)

    def _finish_restore(self, snapshot: Snapshot, data: ObservationData, *, release: bool) -> tuple[Obs, Info]:
        """Go on from a snapshot that the session has restored; return the observation and the info for its response."""
        if release:
            snapshot.consume()
        self._load(snapshot.episode)
        return self._episode.finish_begin(data)

    def _begin_replay(self, snapshot: Snapshot) -> tuple[ResetOptions, list[RecordedStep]]:
        """Go back to the beginning of a snapshot's episode; return the request for it, and the steps to run then."""
        self._episode.load({**snapshot.episode, "_history": [], "_turns": []})
        assert self._episode.options is not None
        return self._episode.options, snapshot.episode["_history"]

    def _finish_replay(self, snapshot: Snapshot, report: ReplayReport, info: Info, *, release: bool) -> None:
        """Go on from a snapshot whose steps have been run, and add the report to the info."""
        self._load(snapshot.episode)
        info["replay"] = report.as_info()
        if release:
            snapshot.release()

    def _choose_seeds(self, n: int, seeds: Sequence[int | None] | None) -> list[int | None]:
        """Return the seed of each fork, None for one whose generators go on from their state.

        Args:
            n: Number of forks.
            seeds: The seeds, or None to draw distinct ones from ``np_random``.

        Raises:
            ConfigurationError: If the number of forks or of seeds is invalid.
        """
        if check_count("n", n, 1) > MAX_FORKS:
            message = f"Expected at most {MAX_FORKS} forks, got {n}"
            raise ConfigurationError(message)
        if seeds is None:
            drawn = self.np_random.choice(_MAX_SEED, size=n, replace=False, shuffle=False)
            return [int(seed) for seed in drawn]
        found: object = seeds
        if not isinstance(found, Sequence) or len(found) != n:
            message = f"Expected {n} seeds, one for each fork, got {seeds!r:.200}"
            raise ConfigurationError(message)
        return list(seeds)

    def _finish_fork_of(self, origin: Self, data: ObservationData, seed: int | None) -> None:
        """Take over the state of another environment, which the session has restored."""
        self._load(origin._episode.save())
        self._episode.finish_begin(data)
        self.np_random = copy.deepcopy(origin.np_random) if seed is None else seeding.np_random(seed)[0]
