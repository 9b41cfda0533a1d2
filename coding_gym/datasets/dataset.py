"""``Dataset``: recorded episodes, read lazily from disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

from coding_gym._html import caption, document, element, mark, table
from coding_gym.datasets.dataset_files import EPISODES_FILE, count_faults
from coding_gym.datasets.episode import Episode, decode_episode, episode_hash
from coding_gym.datasets.episode_log import LogEntry, scan
from coding_gym.datasets.manifest import Manifest
from coding_gym.errors import DatasetError

__all__ = ["Dataset", "dataset_hash", "load"]


class Dataset(Sequence[Episode]):
    """Read-only sequence of the episodes in a directory, ordered by index. Each access reads and decodes the episode again.

    A dataset that is still being collected, or whose collection was interrupted, contains the episodes written so far.

    Args:
        path: Directory of the dataset.

    Raises:
        DatasetError: If the directory contains no dataset, or the dataset is corrupt.
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
        """Indices of the episodes: consecutive from 0 once the dataset is complete."""
        return list(self._indices)

    @property
    def is_complete(self) -> bool:
        """Whether the dataset contains all requested episodes."""
        return len(self) >= self.manifest.episodes

    @property
    def hashes(self) -> dict[int, str]:
        """SHA-256 hex digest of each episode, by index."""
        return {index: entry.sha256.hex() for index, entry in self._entries.items()}

    @property
    def sha256(self) -> str:
        """SHA-256 hex digest of the concatenated episode hashes: equal for equal episodes."""
        return dataset_hash(self._entries)

    @property
    def faults(self) -> int:
        """Number of sandbox failures after which an episode was retried."""
        return count_faults(self.path)

    def episode(self, index: int, *, arrays: bool = True) -> Episode:
        """Return the episode with the given index.

        Args:
            index: Index of the episode.
            arrays: Whether to decode images and other arrays; if False, None replaces them.

        Raises:
            DatasetError: If the dataset does not contain the episode.
        """
        entry = self._entries.get(index)
        if entry is None:
            message = f"There is no episode {index} in {self.path}, which has {len(self)}"
            raise DatasetError(message)
        with (self.path / EPISODES_FILE).open("rb") as file:
            return decode_episode(entry.read(file), arrays=arrays)

    def verify(self) -> None:
        """Check the contents of each episode against its recorded hash.

        Raises:
            DatasetError: If an episode does not match its hash.
        """
        for episode in self:
            if episode_hash(episode) != self._entries[episode.index].sha256:
                message = f"Episode {episode.index} of {self.path} differs from what was recorded: its hash does not match"
                raise DatasetError(message)

    def without_arrays(self) -> Iterator[Episode]:
        """Iterate over the episodes with None in place of images and other arrays: much faster, and enough for statistics."""
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

    def _repr_html_(self) -> str:
        rows = (
            (item.index, item.seed, item.task_id or "", len(item.actions), f"{item.total_reward:g}", mark(item.solved))
            for item in self.without_arrays()
        )
        return document(
            caption(element("b", str(self.path)), f": {len(self)} episodes of {self.manifest.arguments.env}"),
            table(("episode", "seed", "task", "actions", "reward", "solved"), rows, total=len(self)),
        )

    def __repr__(self) -> str:
        return f"<Dataset {self.path}: {len(self)} episodes of {self.manifest.arguments.env}>"

    def _read(self, *, arrays: bool) -> Iterator[Episode]:
        with (self.path / EPISODES_FILE).open("rb") as file:
            for entry in self._entries.values():
                yield decode_episode(entry.read(file), arrays=arrays)


def load(path: Path | str) -> Dataset:
    """Return the dataset that ``collect`` wrote to a directory.

    Raises:
        DatasetError: If the directory contains no dataset, or the dataset is corrupt.
    """
    return Dataset(Path(path))


def dataset_hash(entries: Mapping[int, LogEntry]) -> str:
    """Return the hash of the contents of an episode log."""
    digest = hashlib.sha256()
    for index in sorted(entries):
        digest.update(entries[index].sha256)
    return digest.hexdigest()
