"""``Snapshot``: the state of an episode, from which it can go on any number of times."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coding_gym.errors import SnapshotError
from coding_gym_server.protocol import SnapshotData

if TYPE_CHECKING:
    from coding_gym.client.async_session import AsyncSession
    from coding_gym.client.session import Session

__all__ = ["Snapshot"]


class Snapshot:
    """State of an environment at some time of an episode. Created by ``CodingEnv.clone_state``.

    It occupies a process and the space of the copied files in the sandbox until ``release``, until it is garbage collected, or
    until the environment that has taken it is closed. A ``reset`` of this environment does not end it.

    Args:
        session: The session that has taken it.
        data: The server's data.
        episode: State of the episode on the client's side.

    Attributes:
        id: Its id on the server.
        step_count: Number of steps of the episode when it was taken.
        nbytes: Size of the copied files in bytes. Memory is shared with the session until either changes it.
        episode: State of the episode on the client's side.
    """

    def __init__(self, session: Session | AsyncSession, data: SnapshotData, episode: dict[str, Any]) -> None:
        self.id = data.snapshot
        self.step_count = data.step_count
        self.nbytes = data.nbytes
        self.episode = episode
        self._session: Session | AsyncSession | None = session

    @property
    def is_released(self) -> bool:
        """Whether it has been released."""
        return self._session is None

    def check_usable(self) -> None:
        """Raise if it has been released.

        Raises:
            SnapshotError: If it has.
        """
        if self._session is None:
            raise SnapshotError(["it was released"])

    def release(self) -> None:
        """End its process and delete the copied files. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            session.release(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        # Possibly in another thread, or while a response is pending: it is released with the next request.
        with contextlib.suppress(Exception):
            if self._session is not None:
                self._session.release_later(self.id)
