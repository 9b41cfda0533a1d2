"""Reader of JSON Lines files, optionally compressed with gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError

_GZIP_MAGIC = b"\x1f\x8b"


def read_rows(path: Path) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Read the rows of a file: row number from 0, line number from 1, fields.

    Raises:
        ConfigurationError: If the file cannot be read, or a row is not a JSON object.
    """
    lines = read_lines(path)
    rows: Iterable[tuple[int, Any]] = ((line, _decode(text, path, line)) for line, text in lines)
    for number, (line, row) in enumerate(_flat(rows)):
        if not isinstance(row, dict):
            message = f"{path}, line {line}: expected a JSON object, got {str(row)[:100]!r}"
            raise ConfigurationError(message)
        yield number, line, row


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Read the non-blank lines of a file, optionally compressed with gzip, with their numbers from 1.

    Raises:
        ConfigurationError: If the file cannot be read.
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
        # The standard library's decoder: msgspec's accepts neither NaN nor lone surrogates, and data sets contain both.
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{path}, line {line}: expected JSON, one object a line: {error}"
        raise ConfigurationError(message) from error


def _flat(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Flatten rows: the elements of an array become rows."""
    for line, row in rows:
        if isinstance(row, list):
            yield from ((line, entry) for entry in row)
        else:
            yield line, row
