"""Files of task folders, and scripts that unpack them in a session."""

from __future__ import annotations

import base64
import itertools
import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol.grading import FileContent

__all__ = ["FolderFile", "files_below", "reference_script", "text_of"]

_COLUMNS = 76


class FolderFile(NamedTuple):
    """A file of a task folder.

    Attributes:
        content: Its content.
        is_executable: Whether its owner may execute it.
    """

    content: bytes
    is_executable: bool = False

    @property
    def for_tests(self) -> str | FileContent:
        """Its content as ``RepositoryTests`` have it."""
        text = _text(self.content)
        return FileContent(self.content) if text is None else text


def files_below(directory: Path, parts: Iterable[str] = ("",)) -> dict[str, FolderFile]:
    """Return the files below a directory of a task folder by their relative paths; none if it does not exist.

    Args:
        directory: The directory.
        parts: Directories in it; others are left out.

    Raises:
        ConfigurationError: If there is something that is neither a file nor a directory, or a link that leads elsewhere.
    """
    found: dict[str, FolderFile] = {}
    root = directory.resolve()
    for place, directories, files in itertools.chain.from_iterable(os.walk(root / part) for part in parts):
        for name in sorted(files + [name for name in directories if (Path(place) / name).is_symlink()]):
            path = Path(place) / name
            if not path.is_file() or not path.resolve().is_relative_to(root):
                message = f"{path} is neither a file nor a directory, or a link that leads out of {root}: replace it by a file"
                raise ConfigurationError(message)
            is_executable = bool(path.stat().st_mode & stat.S_IXUSR)
            found[path.relative_to(root).as_posix()] = FolderFile(path.read_bytes(), is_executable)
    return dict(sorted(found.items()))


def text_of(path: Path) -> str:
    """Return the text of a file of a task folder.

    Raises:
        ConfigurationError: If there is none, or it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        message = f"Expected {path} to be a file with text: {error}"
        raise ConfigurationError(message) from error


def reference_script(
    files: Mapping[str, FolderFile],
    *,
    into: str,
    command: str,
    log: str,
    directories: Iterable[str],
    environment: Mapping[str, str],
) -> str:
    """Return a script of sh that unpacks the files of a solution, and runs it.

    Its output goes through a file: what it leaves running keeps a pipe open.

    Args:
        files: The files by their relative paths.
        into: Directory for them. Users who cannot write it get another one.
        command: Command that runs the solution. The directory of its files is ``$solution``.
        log: File for its output. Users who cannot write it get another one.
        directories: Directories that are made before, if the user may.
        environment: Additional environment variables.
    """
    lines = [
        *(f"mkdir -p {directory} 2>/dev/null" for directory in directories),
        f'solution={into}; mkdir -p "$solution" 2>/dev/null && [ -w "$solution" ] || solution=$(mktemp -d)',
        f'log={log}; (: >"$log") 2>/dev/null || log=$(mktemp)',
    ]
    below = sorted({os.path.dirname(path) for path in files} - {""})
    lines += [f'mkdir -p "$solution"/{shlex.quote(directory)}' for directory in below]
    for path, file in files.items():
        lines += _unpacking(f'"$solution"/{shlex.quote(path)}', file)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines += [f'({command}) >"$log" 2>&1 </dev/null', 'code=$?; cat "$log"; exit "$code"', ""]
    return "\n".join(lines)


def _unpacking(target: str, file: FolderFile) -> list[str]:
    """Return lines of sh that write a file."""
    text = _text(file.content)
    if text is not None and text.endswith("\n"):
        program, lines = "cat", text[:-1].split("\n")
    else:
        encoded = base64.b64encode(file.content).decode()
        program, lines = "base64 -d", [encoded[at : at + _COLUMNS] for at in range(0, len(encoded), _COLUMNS)]
    mark = "END"
    while mark in lines:
        mark += "_END"
    mode = [f"chmod 755 {target}"] if file.is_executable else []
    return [f"{program} >{target} <<'{mark}'", *lines, mark, *mode]


def _text(content: bytes) -> str | None:
    """Return text that JSON and shells can carry; None if it is not."""
    try:
        text = content.decode()
    except UnicodeError:
        return None
    return None if "\0" in text else text
