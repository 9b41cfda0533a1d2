"""Loader of data sets from the Hugging Face hub or from Parquet files."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.formats import tasks_of_rows
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym.tasks.loaders.saved_dataset import Rows, is_saved, saved_splits
from coding_gym.tasks.suite import TaskSuite

__all__ = ["load_hugging_face"]

_DEFAULT_SPLITS = ("test", "train")


def load_hugging_face(
    name: str, *, split: str | None = None, config: str | None = None, revision: str | None = None, **options: Any
) -> TaskSuite:
    """Load the tasks of a data set from the Hugging Face hub, from Parquet files, or from a directory of ``save_to_disk``.

    The row format is detected by the fields, see ``docs/tasks.md``. Code that a data set includes is not executed.

    Args:
        name: ``owner/name`` on the hub, or a path.
        split: Split to load; ``test`` by default, else ``train``, else the first one.
        config: Configuration to load, if the data set has several.
        revision: Revision to load; the newest if None.
        options: Fields of ``LoadOptions``: ``limits``, ``time_factor``, ``language``, ``unsupported``, ``testlib``,
            ``generated_tests``, ``show_tests``, ``tolerance``, ``compare``, ``random_seed``, ``instruct``, ``grading``.

    Raises:
        ConfigurationError: If the package ``datasets``, or pyarrow, is not installed, there is no such data set or split, or a
            row is not a task.
    """
    loading = LoadOptions(**options)
    splits = saved_splits(Path(name)) if is_saved(Path(name)) else _load(name, config, revision)
    chosen = split or next((known for known in _DEFAULT_SPLITS if known in splits), None) or next(iter(splits))
    if chosen not in splits:
        message = f"{name} has no split {chosen!r}; it has {', '.join(map(str, splits))}"
        raise ConfigurationError(message)
    rows = ((f"{name}, {chosen}, row {number}", row) for number, row in enumerate(splits[chosen]()))
    source = Path(name).stem if Path(name).exists() else name
    return TaskSuite(source, tasks_of_rows(rows, source=source, options=loading))


def _load(name: str, config: str | None, revision: str | None) -> dict[str, Rows]:
    if importlib.util.find_spec("datasets") is None:
        message = f"{name} requires the package datasets: pip install 'coding-gym[datasets]'"
        raise ConfigurationError(message)
    import datasets

    path = Path(name)
    try:
        if path.is_file():
            splits = datasets.load_dataset("parquet", data_files=str(path))
        else:
            splits = datasets.load_dataset(name, config, revision=revision)
    except (OSError, ValueError, RuntimeError) as error:
        message = f"The data set {name} cannot be loaded: {error}"
        raise ConfigurationError(message) from error
    return {str(split): partial(iter, rows) for split, rows in splits.items()}
