"""Reader of the directories that ``save_to_disk`` of the package ``datasets`` writes: Arrow files, and a description."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError

__all__ = ["is_saved", "saved_splits"]

_DATASET, _DATASETS = "state.json", "dataset_dict.json"

Rows = Callable[[], Iterator[Mapping[str, Any]]]
"""Reads the rows of a split."""


def is_saved(path: Path) -> bool:
    """Return whether a path is such a directory, of one data set or of several splits."""
    return (path / _DATASET).is_file() or (path / _DATASETS).is_file()


def saved_splits(path: Path) -> dict[str, Rows]:
    """Return the splits of a directory by name; a data set without splits is one with the name that it had, or ``train``.

    Raises:
        ConfigurationError: If pyarrow is not installed, or the directory is not complete.
    """
    if importlib.util.find_spec("pyarrow") is None:
        message = f"{path} has Arrow files, which require the package pyarrow: pip install 'coding-gym[datasets]'"
        raise ConfigurationError(message)
    try:
        if (path / _DATASETS).is_file():
            names = json.loads((path / _DATASETS).read_bytes())["splits"]
            return {name: _rows(path / name)[1] for name in names}
        name, rows = _rows(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} is not a complete directory of save_to_disk: {type(error).__name__}: {error}"
        raise ConfigurationError(message) from error
    return {name or "train": rows}


def _rows(path: Path) -> tuple[str | None, Rows]:
    state = json.loads((path / _DATASET).read_bytes())
    files = [path / file["filename"] for file in state["_data_files"]]
    return state.get("_split"), partial(_read, files)


def _read(files: list[Path]) -> Iterator[Mapping[str, Any]]:
    import pyarrow

    for file in files:
        try:
            with pyarrow.memory_map(str(file)) as source, pyarrow.ipc.open_stream(source) as batches:
                for batch in batches:
                    yield from batch.to_pylist()
        except (OSError, pyarrow.ArrowInvalid) as error:
            message = f"{file} cannot be read: {error}"
            raise ConfigurationError(message) from error
