"""``Follower``: a copy of what the watched trainers publish, kept up to date by threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from coding_gym_studio.watching.client import TrainerConnection, TrainerEnded
from coding_gym_studio.watching.directory import socket_paths
from coding_gym_studio.watching.messages import Changes, Hello, ScreenReply, SessionRow, StepRow, Summary

__all__ = ["FollowedProcess", "Follower", "Status"]

Status = Literal["live", "ended", "lost"]
"""``live``; ``ended`` in an orderly way; ``lost``, as after kill -9, or while it is stopped."""

_SEARCH_SECONDS = 1.0
_POLL_SECONDS = 0.5
_MOST_CHANGES_A_SECOND = 2000
"""Polls are rarer if more sessions than these change: an answer costs the trainer some microseconds for each."""

_UNATTENDED_SECONDS = 5.0
_ATTENTION_SECONDS = 10.0


class FollowedProcess:
    """A copy of what a process publishes.

    Args:
        key: A number that no other process of the follower has.
        connection: A connection to it.

    Attributes:
        hello: What the process is.
        status: Whether it still runs.
        summary: Its figures; None before the first answer.
        rows: Its sessions by their numbers, each with a number that grows with each change.
        ended_at: When it was found to have ended, in seconds since the epoch.
    """

    def __init__(self, key: int, connection: TrainerConnection) -> None:
        self.key = key
        self.path = connection.path
        self.hello: Hello = connection.hello
        self.status: Status = "live"
        self.summary: Summary | None = None
        self.rows: dict[int, tuple[int, SessionRow]] = {}
        self.ended_at: float | None = None
        self._changes = 0
        self._connection = connection
        # A second one, so that a screen does not delay the rest.
        self._details: TrainerConnection | None = None
        self._opening = threading.Lock()

    def poll(self) -> int:
        """Update the copy; return the number of changed sessions."""
        try:
            changes = self._connection.changes()
        except TrainerEnded as end:
            if end.last is not None:
                self._apply(end.last)
            self.status = "ended" if end.last is not None else "lost"
            self.ended_at = time.time()
            self.close()
            return 0
        self._apply(changes)
        return len(changes.sessions)

    def history(self, session: int) -> list[StepRow]:
        """Return the last steps of a session, the oldest first.

        Raises:
            TrainerEnded: If the process has ended.
        """
        return self._detailed().history(session)

    def screen(self, session: int) -> ScreenReply:
        """Return the screen of a session.

        Raises:
            TrainerEnded: If the process has ended.
        """
        return self._detailed().screen(session)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._connection.close()
        if self._details is not None:
            self._details.close()

    def _detailed(self) -> TrainerConnection:
        with self._opening:
            if self._details is None:
                self._details = TrainerConnection.open(self.path) if self.status == "live" else None
            if self._details is None:
                raise TrainerEnded(None)
            return self._details

    def _apply(self, changes: Changes) -> None:
        # New dictionaries instead of changes in place: other threads iterate over them.
        rows = {**self.rows}
        for row in changes.sessions:
            self._changes += 1
            rows[row.id] = (self._changes, row)
        for id in changes.removed:
            rows.pop(id, None)
        self.rows, self.summary = rows, changes.summary


class Follower:
    """Follows the processes of trainers, also those that begin later. Use it as a context manager.

    Args:
        is_wanted: Returns whether to follow a process.

    Attributes:
        processes: The followed processes. Ended ones stay until another one of the same name begins; a lost one that answers
            again is replaced.
    """

    def __init__(self, is_wanted: Callable[[Hello], bool]) -> None:
        self.processes: list[FollowedProcess] = []
        self._is_wanted = is_wanted
        self._known: set[Path] = set()
        self._count = 0
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self._attended = 0.0
        self._searcher = threading.Thread(target=self._search_regularly, name="coding_gym_follower", daemon=True)

    def attend(self) -> None:
        """Poll as often as somebody who looks at it needs, for some seconds."""
        self._attended = time.monotonic()

    def get(self, key: int) -> FollowedProcess | None:
        """Return a process by its key; None if it is not followed."""
        return next((process for process in self.processes if process.key == key), None)

    def _search_regularly(self) -> None:
        while not self._closing.is_set():
            self._search()
            self._closing.wait(_SEARCH_SECONDS)

    def _search(self) -> None:
        found = set(socket_paths())
        self._known &= found
        for path in sorted(found - self._known):
            connection = TrainerConnection.open(path)
            if connection is None:
                continue
            self._known.add(path)
            if self._is_wanted(connection.hello):
                self._follow(connection)
            else:
                connection.close()

    def _follow(self, connection: TrainerConnection) -> None:
        with self._changing:
            self._count += 1
            process = FollowedProcess(self._count, connection)
        process.poll()
        with self._changing:
            others = [other for other in self.processes if other.path != process.path]
            kept = [other for other in others if other.status == "live" or other.hello.name != process.hello.name]
            self.processes = [*kept, process]
        threading.Thread(target=self._poll_regularly, args=(process,), name="coding_gym_poller", daemon=True).start()

    def _poll_regularly(self, process: FollowedProcess) -> None:
        while process.status == "live" and not self._closing.is_set():
            changed = process.poll()
            self._closing.wait(max(_POLL_SECONDS, changed / _MOST_CHANGES_A_SECOND))
            while not self._is_attended and not self._closing.wait(_POLL_SECONDS):
                # Rarely, but often enough for a last picture of a trainer that is killed.
                if time.monotonic() % _UNATTENDED_SECONDS < _POLL_SECONDS:
                    break
        if process.status == "ended":
            self._remove_worker(process)
        elif process.status == "lost":
            self._find_again(process)

    def _find_again(self, lost: FollowedProcess) -> None:
        """Follow a process again once it answers, which it does if it was only stopped; a killed one leaves no listener."""
        while lost.path.exists() and not self._closing.wait(_SEARCH_SECONDS):
            connection = TrainerConnection.open(lost.path)
            if connection is not None:
                self._follow(connection)
                return

    def _remove_worker(self, ended: FollowedProcess) -> None:
        """Remove a process that has ended as planned while others of its trainer continue."""
        root = ended.hello.root
        with self._changing:
            if any(other.hello.root == root and other.status == "live" for other in self.processes):
                self.processes = [process for process in self.processes if process is not ended]

    @property
    def _is_attended(self) -> bool:
        return time.monotonic() - self._attended < _ATTENTION_SECONDS

    def __enter__(self) -> Follower:
        self._search()
        self._searcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for process in self.processes:
            with contextlib.suppress(Exception):
                process.close()
