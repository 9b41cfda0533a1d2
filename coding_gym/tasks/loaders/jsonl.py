"""Rows of data sets, from files of JSON Lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.fields import LoadOptions
from coding_gym.tasks.suite import TaskSuite

__all__ = ["load_jsonl", "read_lines", "read_rows", "suite_name"]

_GZIP_MAGIC = b"\x1f\x8b"


def load_jsonl(path: Path | str, *, name: str | None = None, **options: Any) -> TaskSuite:
    """Return the tasks of a file of JSON Lines, compressed by gzip or not, or of one JSON array.

    The format of its rows is found by their fields, see ``docs/tasks.md``.

    Args:
        path: The file.
        name: What the suite is called; as the file is, if None.
        options: Fields of ``LoadOptions``: ``limits``, ``show_tests``, ``tolerance``, ``instruct``.

    Raises:
        ConfigurationError: There is no such file, or a row is no task: which, and what fields it has.
    """
    from coding_gym.tasks.loaders.formats import tasks_of_rows

    path = Path(path)
    source = name or suite_name(path)
    rows = ((f"{path}, line {line}", fields) for _, line, fields in read_rows(path))
    return TaskSuite(source, tasks_of_rows(rows, source=source, options=LoadOptions(**options)))


def suite_name(path: Path) -> str:
    """Return the name of a file without what its endings say."""
    return path.name.partition(".")[0] or path.name


def read_rows(path: Path) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Read the rows of a file: their number from 0 on, their line from 1 on, their fields.

    Raises:
        ConfigurationError: It cannot be read, or a line is no JSON object.
    """
    lines = read_lines(path)
    rows: Iterable[tuple[int, Any]] = ((line, _decode(text, path, line)) for line, text in lines)
    for number, (line, row) in enumerate(_flat(rows)):
        if not isinstance(row, dict):
            message = f"{path}, line {line}: expected a JSON object, got {str(row)[:100]!r}"
            raise ConfigurationError(message)
        yield number, line, row


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Read the lines of a file, compressed by gzip or not, that are not blank, with their numbers from 1 on.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        with path.open("rb") as plain:
            is_compressed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path, "rb") if is_compressed else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except FileNotFoundError as error:
        message = f"There is no file {path}"
        raise ConfigurationError(message) from error
    except (OSError, EOFError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigurationError(message) from error


def _decode(text: bytes, path: Path, line: int) -> Any:
    try:
        # Python's own, for msgspec's takes neither NaN nor lone surrogates, and data sets have both.
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path}, line {line}: expected JSON, one object a line: {error}"
        raise ConfigurationError(message) from error


def _flat(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Return rows, those of an array one by one."""
    for line, row in rows:
        if isinstance(row, list):
            yield from ((line, entry) for entry in row)
        else:
            yield line, row
