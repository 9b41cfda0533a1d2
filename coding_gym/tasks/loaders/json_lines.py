"""Reader of JSON Lines files, and of files with one JSON array, optionally compressed with gzip."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.integers import decode_json

__all__ = ["read_rows", "read_values"]

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Read the rows of a file: file and location, for error messages, and fields.

    Raises:
        ConfigurationError: If the file cannot be read, or a row is not a JSON object.
    """
    for where, row in read_values(path):
        if isinstance(row, Exception):
            message = f"{path}, {where}: expected JSON, one object a line or one array of objects: {row}"
            raise ConfigurationError(message) from row
        if not isinstance(row, dict):
            message = f"{path}, {where}: expected a JSON object, got {str(row)[:100]!r}"
            raise ConfigurationError(message)
        yield f"{path}, {where}", row


def read_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Read the values of a file: those of its non-blank lines or, if it begins with a bracket, the elements of its array.

    Yields:
        The location, ``line 3`` or ``element 3``, both from 1, and the value; for a line that is not JSON, the exception.

    Raises:
        ConfigurationError: If the file cannot be read, or its array is not JSON.
    """
    try:
        with path.open("rb") as plain:
            is_compressed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path, "rb") if is_compressed else path.open("rb") as file:
            yield from _values(file, path)
    except FileNotFoundError as error:
        message = f"There is no file {path}"
        raise ConfigurationError(message) from error
    except (OSError, EOFError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigurationError(message) from error


def _values(file: BufferedIOBase, path: Path) -> Iterator[tuple[str, Any]]:
    is_first = True
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if is_first and line.lstrip().startswith(b"["):
            # Blank lines in front keep the line numbers of errors.
            array = _decoded(b"\n" * (number - 1) + line + file.read())
            if isinstance(array, Exception):
                message = f"{path}: expected a JSON array, as its first character is a bracket: {array}"
                raise ConfigurationError(message) from array
            yield from ((f"element {place}", value) for place, value in enumerate(array, 1))
        elif line.strip():
            is_first = False
            yield f"line {number}", _decoded(line)


def _decoded(text: bytes) -> Any:
    """Return the value of a JSON text, or the exception if it is not valid."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        return error
