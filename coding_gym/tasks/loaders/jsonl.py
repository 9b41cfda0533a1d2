"""Loader of data sets from JSON Lines files and JSON arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_gym.tasks.loaders.formats import tasks_of_rows
from coding_gym.tasks.loaders.json_lines import read_rows
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym.tasks.suite import TaskSuite

__all__ = ["load_jsonl", "suite_name"]


def load_jsonl(path: Path | str, *, name: str | None = None, **options: Any) -> TaskSuite:
    """Load the tasks of a JSON Lines file, or of one JSON array, optionally compressed with gzip.

    The row format is detected by the fields, see ``docs/tasks.md``.

    Args:
        path: The file.
        name: Name of the suite; derived from the file name if None.
        options: Fields of ``LoadOptions``: ``limits``, ``time_factor``, ``language``, ``unsupported``, ``testlib``,
            ``generated_tests``, ``show_tests``, ``tolerance``, ``compare``, ``random_seed``, ``instruct``, ``grading``.

    Raises:
        ConfigurationError: If there is no such file, or a row is not a task; the message gives its place and fields.
    """
    path = Path(path)
    source = name or suite_name(path)
    return TaskSuite(source, tasks_of_rows(read_rows(path), source=source, options=LoadOptions(**options)))


def suite_name(path: Path) -> str:
    """Return a file name without its extensions."""
    return path.name.partition(".")[0] or path.name
