"""``Dataset``: recorded episodes, read when somebody looks at them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

from coding_gym.datasets.log import Entry, scan
from coding_gym.datasets.manifest import Manifest
from coding_gym.datasets.records import Episode, decode_episode, episode_hash
from coding_gym.errors import DatasetError

__all__ = ["EPISODES_FILE", "FAULTS_FILE", "Dataset", "dataset_hash", "load"]

EPISODES_FILE = "episodes.log"
FAULTS_FILE = "faults.jsonl"


class Dataset(Sequence[Episode]):
    """The episodes of a directory, in the order of their numbers. Each look at one reads it anew.

    One that is still being collected, or was interrupted, has those that are written.

    Args:
        path: The directory.

    Raises:
        DatasetError: There is no dataset, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        manifest = Manifest.read(path)
        if manifest is None or not (path / EPISODES_FILE).exists():
            message = f"There is no dataset in {path}: expected a directory that collect() has written"
            raise DatasetError(message)
        self.path = path
        self.manifest = manifest
        found, _ = scan(path / EPISODES_FILE)
        self._entries = dict(sorted(found.items()))
        self._indices = list(self._entries)

    @property
    def indices(self) -> list[int]:
        """The numbers of the episodes: from 0 on without a gap when all are there."""
        return list(self._indices)

    @property
    def is_complete(self) -> bool:
        """Whether all episodes are there that were asked for."""
        return len(self) >= self.manifest.episodes

    @property
    def hashes(self) -> dict[int, str]:
        """The SHA-256 of each episode, by its number."""
        return {index: entry.sha256.hex() for index, entry in self._entries.items()}

    @property
    def sha256(self) -> str:
        """The SHA-256 of the episodes' hashes, one after the other: equal for equal episodes."""
        return dataset_hash(self._entries)

    @property
    def faults(self) -> int:
        """How often a sandbox failed and an episode was tried again."""
        try:
            return (self.path / FAULTS_FILE).read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def episode(self, index: int, *, arrays: bool = True) -> Episode:
        """Return the episode of this number.

        Args:
            index: The number.
            arrays: Whether to decode pictures and other arrays, too, rather than to put None in their places.

        Raises:
            DatasetError: It is not there.
        """
        entry = self._entries.get(index)
        if entry is None:
            message = f"There is no episode {index} in {self.path}, which has {len(self)}"
            raise DatasetError(message)
        with (self.path / EPISODES_FILE).open("rb") as file:
            return decode_episode(entry.read(file), arrays=arrays)

    def verify(self) -> None:
        """Compare what is in each episode with its hash.

        Raises:
            DatasetError: One is not what was recorded.
        """
        for episode in self:
            if episode_hash(episode) != self._entries[episode.index].sha256:
                message = f"Episode {episode.index} of {self.path} is not what was recorded: its hash is another"
                raise DatasetError(message)

    def without_arrays(self) -> Iterator[Episode]:
        """Return the episodes with None in the place of each picture or array: what statistics want, much sooner."""
        return self._read(arrays=False)

    def __iter__(self) -> Iterator[Episode]:
        return self._read(arrays=True)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, position: int) -> Episode: ...

    @overload
    def __getitem__(self, position: slice) -> list[Episode]: ...

    def __getitem__(self, position: int | slice) -> Episode | list[Episode]:
        if isinstance(position, slice):
            return [self.episode(index) for index in self._indices[position]]
        return self.episode(self._indices[position])

    def __repr__(self) -> str:
        return f"<Dataset {self.path}: {len(self)} episodes of {self.manifest.arguments.env}>"

    def _read(self, *, arrays: bool) -> Iterator[Episode]:
        with (self.path / EPISODES_FILE).open("rb") as file:
            for entry in self._entries.values():
                yield decode_episode(entry.read(file), arrays=arrays)


def load(path: Path | str) -> Dataset:
    """Return the dataset that ``collect`` has written to a directory.

    Raises:
        DatasetError: There is none, or it is damaged.
    """
    return Dataset(Path(path))


def dataset_hash(entries: Mapping[int, Entry]) -> str:
    """Return the hash of what is in a file of episodes."""
    digest = hashlib.sha256()
    for index in sorted(entries):
        digest.update(entries[index].sha256)
    return digest.hexdigest()
