"""Transfer of the changes of one session to another one of the same image, and of files to a session."""

from __future__ import annotations

import base64
import json
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ProtocolError
from coding_gym.sandbox import Sandbox
from coding_gym.tasks.repository import tree_program

__all__ = [
    "ChangesError",
    "Prepared",
    "arrange",
    "changed_paths",
    "collect_changes",
    "prepare",
    "read_file",
    "remove",
    "working_directory",
]

_PROGRAM = Path(tree_program.__file__).read_text(encoding="utf-8")
_INTERPRETER = "/proc/self/exe"
"""That of the process which is to execute the program, the server's: the image need not have any."""

_TIMEOUT = 300.0
_ATTEMPTS = 3
_LARGEST = 256 << 20
_NEVER_CARRIED = (".git", "__pycache__")
_Request = tuple[str, dict[str, Any], bytes]
_MODE = 0o755

_directories: weakref.WeakKeyDictionary[Sandbox | None, str] = weakref.WeakKeyDictionary()


class ChangesError(Exception):
    """The changes of a session cannot be carried."""


class Prepared(NamedTuple):
    """State of a session before any program has run in it.

    Attributes:
        directories: Real paths of the directories whose changes are carried; None for all of the image.
        kept: Real paths that are to have the state of the image.
        before: State of the directories.
    """

    directories: list[str] | None
    kept: list[str]
    before: dict[str, Any]


def prepare(env: CodingEnv, directories: Sequence[str] | None, kept: Sequence[str]) -> Prepared:
    """Return the state of a session before any program has run in it.

    Args:
        env: The session.
        directories: Absolute paths of directories whose changes are carried; None for all of the image.
        kept: Absolute paths that are to have the state of the image.
    """
    listed = None if directories is None else list(directories)
    arguments = {"directories": listed, "kept": list(kept), "excluded": _NEVER_CARRIED}
    return Prepared(**json.loads(_run(env, "prepare", arguments).stdout))


def changed_paths(env: CodingEnv, prepared: Prepared) -> list[str]:
    """Return the real paths of what has changed in a session since, except for directories."""
    arguments = {"before": prepared.before, "directories": prepared.directories, "excluded": _left_out(prepared)}
    paths: list[str] = json.loads(_run(env, "changed", arguments).stdout)
    return paths


def collect_changes(env: CodingEnv, prepared: Prepared, *, max_bytes: int) -> bytes:
    """Return the changes of a session of the same image, since it has begun.

    Args:
        env: The session, of which other programs should have ended.
        prepared: State of a new one.
        max_bytes: Maximum size of what has changed, without holes in files.

    Raises:
        ChangesError: If it is exceeded, or the session keeps its files from being read.
    """
    arguments = {
        "before": prepared.before,
        "directories": prepared.directories,
        "excluded": _left_out(prepared),
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


def arrange(
    env: CodingEnv,
    files: Mapping[str, bytes],
    *,
    removed: Sequence[str] = (),
    prepared: Prepared | None = None,
    kept: Sequence[str] = (),
    changes: bytes = b"",
) -> None:
    """Make changes in a session, and then write files that all users can read and execute.

    Args:
        env: The session.
        files: Content by absolute path; what is in their place is removed. Paths that end with a slash are directories that all
            users can write.
        removed: Absolute paths of what is removed before.
        prepared: State of the session in the beginning, for changes.
        kept: Further real paths that changes do not touch.
        changes: Changes from ``collect_changes``.

    Raises:
        ChangesError: If the changes are malformed, or something does not fit into the session.
    """
    content = {path: [base64.b64encode(data).decode(), _MODE] for path, data in files.items()}
    requests: list[_Request] = [("remove", {"paths": list(removed)}, b""), ("write", {"files": content}, b"")]
    if prepared is not None:
        arguments = {
            "directories": prepared.directories,
            "kept": [*prepared.kept, *kept],
            "excluded": _NEVER_CARRIED,
        }
        requests.insert(0, ("apply", arguments, changes))
    _execute(env, *requests)


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
    """Return the working directory of the image of a session."""
    sandbox = env.sandbox
    if sandbox not in _directories:
        _directories[sandbox] = _run(env, "where", {}, cwd=None).stdout_text
    return _directories[sandbox]


def _left_out(prepared: Prepared) -> list[str]:
    return [*_NEVER_CARRIED, *prepared.kept]


def _run(env: CodingEnv, command: str, arguments: dict[str, Any], *, cwd: str | None = "/") -> ProcessResult:
    return _execute(env, (command, arguments, b""), cwd=cwd)


def _execute(env: CodingEnv, *requests: _Request, cwd: str | None = "/") -> ProcessResult:
    # Names of files need not be Unicode, which this encoder escapes.
    head = json.dumps([(command, arguments, len(data)) for command, arguments, data in requests]).encode()
    result = env.exec(
        [_INTERPRETER, "-I", "-S", "-c", _PROGRAM],
        stdin=b"".join([head, b"\n", *(data for *_, data in requests)]),
        # By its id: a program may have removed its name.
        user="0",
        cwd=cwd,
        timeout=_TIMEOUT,
        max_output_bytes=_LARGEST,
    )
    if result.exit_code != 0 or result.dropped_stdout:
        lines = result.stderr_text.strip().splitlines() or ["it was ended"]
        raise ChangesError(lines[-1].removeprefix("ValueError: "))
    return result
