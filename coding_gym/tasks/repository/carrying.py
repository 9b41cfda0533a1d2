"""Transfer of the changes of one session to another one of the same image, and of files to a session."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ProtocolError
from coding_gym.tasks.repository import tree_program

__all__ = [
    "ChangesError",
    "apply_changes",
    "collect_changes",
    "describe",
    "directories_of_root",
    "read_file",
    "remove",
    "restore",
    "save",
    "working_directory",
    "write_files",
]

_PROGRAM = Path(tree_program.__file__).read_text(encoding="utf-8")
_INTERPRETER = "/proc/self/exe"
"""That of the process which is to execute the program, the server's: the image need not have any."""

_TIMEOUT = 300.0
_ATTEMPTS = 3
_LARGEST = 256 << 20
_NEVER_CARRIED = (".git", "__pycache__")
_MODE = 0o755


class ChangesError(Exception):
    """The changes of a session cannot be carried."""


def describe(env: CodingEnv, directories: Sequence[str], protected: Sequence[str]) -> bytes:
    """Return the state of directories of a session, before any program has run in it, for ``collect_changes``.

    Args:
        env: The session.
        directories: Absolute paths.
        protected: Absolute paths to leave out.
    """
    arguments = {"directories": list(directories), "excluded": [*_NEVER_CARRIED, *protected]}
    return _run(env, "list", arguments).stdout


def collect_changes(
    env: CodingEnv, before: bytes, directories: Sequence[str], protected: Sequence[str], *, max_bytes: int
) -> bytes:
    """Return the changes of directories since a session has begun.

    Args:
        env: The session, of which other programs should have ended.
        before: State of another one in the beginning.
        directories: Absolute paths.
        protected: Absolute paths to leave out.
        max_bytes: Maximum size of what has changed, without holes in files.

    Raises:
        ChangesError: If it is exceeded, or the session keeps its files from being read.
    """
    arguments = {
        "before": json.loads(before),
        "directories": list(directories),
        "excluded": [*_NEVER_CARRIED, *protected],
        "max_bytes": max_bytes,
    }
    reason: object = None
    for _ in range(_ATTEMPTS):
        try:
            return _run(env, "collect", arguments).stdout
        except ProtocolError as error:
            # Root of the session can kill what starts its programs, which is replaced, unless its interpreter is gone.
            reason = error
    message = f"the session of the changes starts no programs any more: {reason}"
    raise ChangesError(message)


def apply_changes(env: CodingEnv, changes: bytes, directories: Sequence[str]) -> None:
    """Make changes in a session.

    Raises:
        ChangesError: If they are malformed, or do not fit into the session.
    """
    _run(env, "apply", {"directories": list(directories)}, changes)


def save(env: CodingEnv, paths: Sequence[str]) -> bytes:
    """Return what is at some paths of a session, for ``restore``."""
    arguments = {"before": {}, "directories": list(paths), "excluded": [], "max_bytes": _LARGEST}
    return _run(env, "collect", arguments).stdout


def restore(env: CodingEnv, paths: Sequence[str], saved: bytes) -> None:
    """Replace what is at some paths of a session by what was there before.

    Raises:
        ChangesError: If that does not fit into the session.
    """
    _run(env, "restore", {"paths": list(paths)}, saved)


def write_files(env: CodingEnv, files: Mapping[str, bytes]) -> None:
    """Write files that all users can read and execute, in the place of what is there.

    Args:
        env: The session.
        files: Content by absolute path.

    Raises:
        ChangesError: If they do not fit into the session.
    """
    content = {path: [base64.b64encode(data).decode(), _MODE] for path, data in files.items()}
    _run(env, "write", {"files": content})


def read_file(env: CodingEnv, path: str, *, max_bytes: int) -> bytes:
    """Return the content of a file, up to a number of bytes.

    Raises:
        ChangesError: If there is none.
    """
    return _run(env, "read", {"path": path, "limit": max_bytes}).stdout


def remove(env: CodingEnv, paths: Sequence[str]) -> None:
    """Remove what is at some absolute paths.

    Raises:
        ChangesError: If that is not possible.
    """
    _run(env, "remove", {"paths": list(paths)})


def working_directory(env: CodingEnv) -> str:
    """Return the working directory of the image."""
    return _run(env, "where", {}, cwd=None).stdout_text


def directories_of_root(env: CodingEnv) -> list[str]:
    """Return the directories of ``/`` that have files of the image."""
    directories: list[str] = json.loads(_run(env, "root", {}).stdout)
    return directories


def _run(env: CodingEnv, command: str, arguments: dict[str, Any], data: bytes = b"", *, cwd: str | None = "/") -> ProcessResult:
    result = env.exec(
        [_INTERPRETER, "-I", "-S", "-c", _PROGRAM, command],
        stdin=json.dumps(arguments).encode() + b"\n" + data,
        user="root",
        cwd=cwd,
        timeout=_TIMEOUT,
        max_output_bytes=_LARGEST,
    )
    if result.exit_code != 0 or result.dropped_stdout:
        lines = result.stderr_text.strip().splitlines() or ["it was ended"]
        raise ChangesError(lines[-1].removeprefix("ValueError: "))
    return result
