"""Validation of the options of ``reset``, before anything is sent."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym._validation import check_mapping, check_names
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import FileContent

__all__ = ["check_reset_options", "encode_files"]

_MAX_NAME_BYTES = 255


def check_reset_options(options: Mapping[str, Any] | None, known: Iterable[str]) -> None:
    """Check the names of options, and those options that every environment has.

    Args:
        options: The options of ``reset``.
        known: The valid names.

    Raises:
        ConfigurationError: If a name is unknown, or a value is invalid.
    """
    check_mapping("options", options)
    options = options or {}
    check_names(options, known, "reset option")
    episode_id = options.get("episode_id")
    if not isinstance(episode_id, str | None):
        message = f"Expected options['episode_id'] to be a str or None, got {episode_id!r:.200}"
        raise ConfigurationError(message)
    encode_files(options.get("files"))


def encode_files(files: Any) -> dict[str, str | FileContent]:
    """Return the files of ``reset(options=...)`` in the wire format.

    Raises:
        ConfigurationError: If they are not a mapping of relative paths to contents.
    """
    if files is None:
        return {}
    valid = isinstance(files, Mapping) and all(
        isinstance(path, str) and isinstance(content, str | bytes) for path, content in files.items()
    )
    if not valid:
        message = f"Expected options['files'] to be a mapping of paths to str or bytes, got {files!r:.200}"
        raise ConfigurationError(message)
    normalized = {posixpath.normpath(path) for path in files}
    for path, content in files.items():
        if problem := _problem(path, normalized) or _problem_of_content(content):
            message = (
                f"Expected options['files'] to have paths relative to the working directory, such as 'data/a.csv'; "
                f"{path!r:.300} {problem}"
            )
            raise ConfigurationError(message)
    return {path: content if isinstance(content, str) else FileContent(content) for path, content in files.items()}


def _problem(path: str, paths: set[str]) -> str:
    """Return why there cannot be a file of this path, empty if there can.

    Args:
        path: The path.
        paths: The normalized paths of all files.
    """
    normal = posixpath.normpath(path)
    if "\0" in path:
        return "contains a null character"
    if not _is_unicode(path):
        return "is not Unicode"
    if path.startswith("/"):
        return "is absolute"
    if not path or normal == ".":
        return "names no file"
    if normal.split("/")[0] == "..":
        return "leads out of it"
    if any(len(name.encode()) > _MAX_NAME_BYTES for name in normal.split("/")):
        return f"has a name of more than {_MAX_NAME_BYTES} bytes"
    parents = (normal[:position] for position, character in enumerate(normal) if character == "/")
    if file := next((parent for parent in parents if parent in paths), None):
        return f"is below {file!r}, which is a file"
    return ""


def _problem_of_content(content: str | bytes) -> str:
    return "" if isinstance(content, bytes) or _is_unicode(content) else "has content that UTF-8 cannot encode: pass bytes"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
