"""``Snapshot``: the state of an episode, from which it can continue any number of times."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coding_gym.envs.episode import RecordedStep
from coding_gym.errors import ConfigurationError, SnapshotError
from coding_gym_server.protocol import Observation, SnapshotData

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = [
    "ReplayReport",
    "Snapshot",
    "check_seed",
    "check_snapshot",
]


class Snapshot:
    """State of an environment at some time of an episode. Created by ``CodingEnv.clone_state``.

    It occupies a process and the space of the copied files in the sandbox until ``release``, until it is garbage collected, or
    until the environment that has taken it is closed. A ``reset`` of this environment does not end it, unless a pool replaces
    the sandbox. A snapshot that is only a record of the episode (``clone_state(replay=True)``) occupies
    nothing in the sandbox.

    Args:
        session: The session that has taken it; None if it is only a record.
        data: The server's data.
        episode: State of the episode on the client's side.

    Attributes:
        id: Its id on the server.
        step_count: Number of steps of the episode when it was taken.
        nbytes: Size of the copied files in bytes. Memory is shared with the session until either changes it.
        is_record: Whether it is only a record of the episode, which is restored by replay.
        episode: State of the episode on the client's side.
    """

    def __init__(self, session: Session | None, data: SnapshotData, episode: dict[str, Any]) -> None:
        self.id = data.snapshot
        self.step_count = data.step_count
        self.nbytes = data.nbytes
        self.episode = episode
        self.is_record = session is None
        self._session = session
        self._is_released = False

    @classmethod
    def of_record(cls, episode: dict[str, Any]) -> Self:
        """Create a snapshot that is only a record of the episode."""
        return cls(None, SnapshotData(snapshot="", step_count=len(episode["_history"]), nbytes=0), episode)

    @property
    def is_released(self) -> bool:
        """Whether it has been released."""
        return self._is_released

    def check_usable(self) -> None:
        """Raise if it has been released.

        Raises:
            SnapshotError: If it has.
        """
        if self._is_released:
            raise SnapshotError(["it was released"])

    def release(self) -> None:
        """End its process and delete the copied files. Idempotent."""
        self._is_released = True
        session, self._session = self._session, None
        if session is not None:
            session.release(self.id)

    def consume(self) -> None:
        """Called when the server has ended it, as a part of a restore."""
        self._is_released, self._session = True, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        # Possibly in another thread, or while a response is pending: it is released with the next request.
        with contextlib.suppress(Exception):
            if self._session is not None:
                self._session.release_later(self.id)


def check_snapshot(snapshot: object) -> None:
    """Raise if an object is not a snapshot.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(snapshot, Snapshot):
        message = f"Expected a Snapshot, as clone_state() returns it, got {snapshot!r:.200}"
        raise ConfigurationError(message)


_COMPARED = ("stdout", "stderr", "exit_code")


class ReplayReport:
    """The number of replayed steps, and the differences of their outputs from the recorded ones."""

    def __init__(self) -> None:
        self._steps = 0
        self._differences: list[dict[str, Any]] = []

    def add(self, recorded: RecordedStep, found: Observation) -> None:
        """Compare a step with its record."""
        self._differences += [
            {"step": self._steps, "field": name, "expected": getattr(recorded, name), "found": getattr(found, name)}
            for name in _COMPARED
            if getattr(recorded, name) != getattr(found, name)
        ]
        self._steps += 1

    def as_info(self) -> dict[str, Any]:
        """Return the report for ``info["replay"]``."""
        return {"steps": self._steps, "differences": self._differences}


def check_seed(seed: int | None) -> None:
    """Raise if there is a seed.

    Raises:
        ConfigurationError: If there is one.
    """
    if seed is not None:
        message = "Expected seed=None for a replay, which runs the actions with the seed of their episode"
        raise ConfigurationError(message)
