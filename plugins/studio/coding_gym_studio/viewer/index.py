"""``EpisodeIndex``: a summary of each episode of a dataset, read in a thread while the page is open.

Nothing here imports NumPy or an environment, which would take longer than reading the first thousand episodes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from coding_gym.datasets.dataset_files import DETAILS_FILE, EPISODES_FILE, count_faults
from coding_gym.datasets.details import EpisodeDetails
from coding_gym.datasets.episode_log import Record, matches_checksum, records
from coding_gym.datasets.manifest import Manifest
from coding_gym.errors import DatasetError
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_studio.viewer.index_cache import load_index, save_index
from coding_gym_studio.viewer.summaries import Summaries, summary_of

__all__ = ["EpisodeIndex"]

_BATCH = 256
"""Number of episodes that are added at a time."""

_FEWEST_CACHED = 5000
"""Number of episodes from which on reading them takes longer than a moment."""

_DETAILS_SECONDS = 10.0
"""Maximum number of seconds that an episode waits for its details, which are read after all episodes."""


class EpisodeIndex:
    """Index of the episodes of a dataset, which may still be growing. Thread-safe.

    Args:
        path: Directory of the dataset.

    Attributes:
        path: Directory of the dataset.
        summaries: Summaries of the episodes that have been read.
        generation: Number of times that the file was replaced: rows of another generation are void.
        is_reading: Whether episodes or details are being read.
        has_times: Whether the times of all episodes have been read.
        problem: Why not all episodes can be read; empty if there is no reason.

    Raises:
        DatasetError: If the directory contains no dataset.
    """

    def __init__(self, path: Path) -> None:
        manifest = Manifest.read(path)
        if manifest is None or not (path / EPISODES_FILE).exists():
            message = f"There is no dataset in {path}: expected a directory that collect() has written"
            raise DatasetError(message)
        self.path = path
        self.generation = 0
        self.is_reading = True
        self.has_times = False
        self.problem = ""
        self._manifest = manifest
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._is_wanted = threading.Event()
        self._start_over()

    def _start_over(self) -> None:
        self.summaries = Summaries()
        self._rows: dict[int, int] = {}
        self._details: dict[int, tuple[int, int]] = {}
        self._end = 0
        self._details_end = 0
        self._inode = 0
        self.problem = ""

    @property
    def manifest(self) -> Manifest:
        """The manifest, read again if it is readable: its number of episodes changes when a dataset is extended."""
        with contextlib.suppress(DatasetError):
            self._manifest = Manifest.read(self.path) or self._manifest
        return self._manifest

    @property
    def faults(self) -> int:
        """Number of sandbox failures after which an episode was retried."""
        with contextlib.suppress(OSError):
            return count_faults(self.path)
        return 0

    def start(self) -> None:
        """Read what is new in the files, in a thread, unless one is at it.

        Until ``resume`` is called, it reads the first episodes only, and does not compete with the page for the interpreter.
        """
        if self._reading.acquire(blocking=False):
            self.is_reading = True
            threading.Thread(target=self._read_and_release, name="coding_gym-view", daemon=True).start()

    def resume(self) -> None:
        """Read the other episodes, too."""
        self._is_wanted.set()

    def read(self) -> None:
        """Read what is new in the files."""
        self.resume()
        with self._reading:
            self._read()

    def row(self, index: int) -> int | None:
        """Return the row of an episode, None if there is none."""
        return self._rows.get(index)

    def record(self, index: int) -> bytes:
        """Return an encoded episode.

        Raises:
            DatasetError: If the dataset does not contain the episode, it is damaged, or the file cannot be read.
        """
        with self._lock:
            row = self._rows.get(index)
            if row is None:
                message = f"There is no episode {index} in {self.path}, which has {len(self.summaries)}"
                raise DatasetError(message)
            offset, length = self.summaries.offsets[row], self.summaries.lengths[row]
            is_intact = self.summaries.is_intact(row)
        try:
            with (self.path / EPISODES_FILE).open("rb") as file:
                if not is_intact:
                    raise DatasetError(self._damage(index, file, offset))
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            message = f"Episode {index} of {self.path} cannot be read: {error.strerror}. Restore the dataset"
            raise DatasetError(message) from error

    def _damage(self, index: int, file: BinaryIO, offset: int) -> str:
        if matches_checksum(file, offset):
            return (
                f"Episode {index} of {self.path} cannot be decoded, although its checksum matches: collect it with this "
                "version of coding-gym"
            )
        return f"Episode {index} of {self.path} is damaged: its checksum does not match"

    def details(self, index: int) -> EpisodeDetails | None:
        """Return the details of an episode, if necessary once all have been read; None if there are none."""
        place = self._details.get(index)
        if place is None and self.is_reading:
            self.resume()
            if self._reading.acquire(timeout=_DETAILS_SECONDS):
                self._reading.release()
            place = self._details.get(index)
        if place is None:
            return None
        # Details only: an episode is shown without them if the file is damaged, or was removed.
        with contextlib.suppress(OSError, *DECODING_ERRORS), (self.path / DETAILS_FILE).open("rb") as file:
            file.seek(place[0])
            return msgspec.json.decode(file.read(place[1]), type=EpisodeDetails)
        return None

    def seconds(self) -> list[float | None]:
        """Return the wall-clock time of each episode that has been read, in seconds; None if it is not known."""
        with self._lock:
            return [None if value != value else value for value in self.summaries.seconds]

    def _read_and_release(self) -> None:
        try:
            self._read()
        finally:
            self.is_reading = False
            self._reading.release()

    def _read(self) -> None:
        before = (self._end, self._details_end)
        try:
            if self._end == 0 and self._restore():
                return
            self._read_episodes()
            self._read_details()
            self._save(before)
        except (OSError, DatasetError) as error:
            self.problem = str(error)
        except Exception as error:  # noqa: BLE001 - otherwise the page would lack episodes without a reason
            self.problem = f"The dataset cannot be read: {type(error).__name__}: {error}"
        finally:
            self.is_reading = False

    def _restore(self) -> bool:
        """Take the index from the cache, and return whether it was there."""
        cached = load_index(self.path)
        if cached is None:
            return False
        starts = array("Q")
        try:
            starts.frombytes(cached.details)
            columns = cached.arrays()
            with self._lock:
                self.summaries.restore(columns, cached.outcomes, cached.tasks)
                self._rows = dict(zip(self.summaries.episodes(), range(len(self.summaries)), strict=True))
                self._details = dict(zip(starts[::3], zip(starts[1::3], starts[2::3], strict=True), strict=True))
                self._end, self._details_end = cached.ends
                self._inode = cached.inode
        except (KeyError, TypeError, ValueError):
            # Not written by this package.
            self._start_over()
            return False
        self.has_times = bool(self._details)
        return True

    def _save(self, before: tuple[int, int]) -> None:
        """Keep the index of a large dataset that is complete, if anything was read since ``before``."""
        ends = (self._end, self._details_end)
        if ends == before or len(self.summaries) < _FEWEST_CACHED or self.manifest.sha256 is None:
            return
        details = array("Q", (number for episode, place in self._details.items() for number in (episode, *place)))
        save_index(
            self.path,
            columns=self.summaries.dump(),
            outcomes=self.summaries.outcomes,
            tasks=self.summaries.tasks,
            details=details.tobytes(),
            ends=ends,
            inode=self._inode,
        )

    def _read_episodes(self) -> None:
        path = self.path / EPISODES_FILE
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if self._inode not in (0, status.st_ino) or status.st_size < self._end:
                # Sorted at the end of the collection, or collected anew.
                with self._lock:
                    self._start_over()
                    self.generation += 1
            self._inode = status.st_ino
            if status.st_size <= self._end:
                return
            for batch in _batches(records(file, self._end)):
                rows = [summary_of(record, file) for record in batch]
                with self._lock:
                    start = self.summaries.extend(batch, rows)
                    self._rows.update((record.episode, row) for row, record in enumerate(batch, start))
                    self._end = batch[-1].end
                self._is_wanted.wait()
        if self._end < status.st_size and self.manifest.sha256 is not None:
            # Not a record that is being written: the collection has ended.
            message = f"The episodes are damaged at byte {self._end}: those that follow cannot be read"
            raise DatasetError(message)

    def _read_details(self) -> None:
        decoder = msgspec.json.Decoder(_DetailsSummary)
        try:
            file = (self.path / DETAILS_FILE).open("rb")
        except FileNotFoundError:
            return
        with file:
            if os.fstat(file.fileno()).st_size < self._details_end:
                self._details_end = 0
            file.seek(self._details_end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                start = self._details_end
                self._details_end += len(line)
                with contextlib.suppress(*DECODING_ERRORS):
                    details = decoder.decode(line)
                    self._details[details.episode] = (start, len(line))
                    row = self._rows.get(details.episode)
                    if row is not None:
                        self.summaries.seconds[row] = sum(step.seconds + step.policy_seconds for step in details.steps)
        self.has_times = bool(self._details)


class _StepTimes(msgspec.Struct):
    seconds: float = 0.0
    policy_seconds: float = 0.0


class _DetailsSummary(msgspec.Struct):
    episode: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    steps: list[_StepTimes] = []


def _batches(found: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    try:
        for record in found:
            batch.append(record)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    except DatasetError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
