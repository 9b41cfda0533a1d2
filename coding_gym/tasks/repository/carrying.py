"""Transfer of the changes of one session to another one of the same image, and of files to a session."""

from __future__ import annotations

import base64
import json
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ProtocolError
from coding_gym.sandbox import Sandbox
from coding_gym.tasks.repository import tree_program

__all__ = ["ChangesError", "arrange", "collect_changes", "prepare", "read_file", "remove", "working_directory"]

_PROGRAM = Path(tree_program.__file__).read_text(encoding="utf-8")
_INTERPRETER = "/proc/self/exe"
"""That of the process which is to execute the program, the server's: the image need not have any."""

_TIMEOUT = 300.0
_ATTEMPTS = 3
_LARGEST = 256 << 20
_NEVER_CARRIED = (".git", "__pycache__")
_MODE = 0o755

_directories: weakref.WeakKeyDictionary[Sandbox | None, str] = weakref.WeakKeyDictionary()


class ChangesError(Exception):
    """The changes of a session cannot be carried."""


def prepare(
    env: CodingEnv, directories: Sequence[str] | None, protected: Sequence[str], left_out: Sequence[str]
) -> tuple[bytes, bytes]:
    """Return what a session has before any program has run in it.

    Args:
        env: The session.
        directories: Absolute paths of directories whose changes are carried; None for all of the image.
        protected: Absolute paths that are to be restored.
        left_out: Absolute paths whose changes are not carried.

    Returns:
        What is at the protected paths, for ``arrange``, and the state of the directories, for ``collect_changes``.
    """
    everything = {"before": {}, "directories": list(protected), "excluded": [], "max_bytes": _LARGEST}
    described = {"directories": _listed(directories), "excluded": [*_NEVER_CARRIED, *left_out]}
    saved, before = _run_all(env, ("collect", everything, b""), ("list", described, b""))
    return saved, before


def collect_changes(
    env: CodingEnv, before: bytes, directories: Sequence[str] | None, left_out: Sequence[str], *, max_bytes: int
) -> bytes:
    """Return the changes of directories since a session has begun.

    Args:
        env: The session, of which other programs should have ended.
        before: State of another one in the beginning.
        directories: As for ``prepare``.
        left_out: As for ``prepare``.
        max_bytes: Maximum size of what has changed, without holes in files.

    Raises:
        ChangesError: If it is exceeded, or the session keeps its files from being read.
    """
    arguments = {
        "before": json.loads(before),
        "directories": _listed(directories),
        "excluded": [*_NEVER_CARRIED, *left_out],
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
    changes: bytes = b"",
    directories: Sequence[str] | None = (),
    protected: Sequence[str] = (),
    saved: bytes = b"",
) -> None:
    """Make changes in a session, restore protected paths there, and write files that all users can read and execute.

    Args:
        env: The session.
        files: Content by absolute path; what is in their place is removed. Paths that end with a slash are directories that all
            users can write.
        changes: Changes from ``collect_changes``.
        directories: As for ``prepare``.
        protected: As for ``prepare``.
        saved: What is at the protected paths, from ``prepare``.

    Raises:
        ChangesError: If the changes are malformed, or something does not fit into the session.
    """
    content = {path: [base64.b64encode(data).decode(), _MODE] for path, data in files.items()}
    _run_all(
        env,
        ("apply", {"directories": _listed(directories)}, changes),
        ("restore", {"paths": list(protected)}, saved),
        ("write", {"files": content}, b""),
    )


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


def _listed(paths: Sequence[str] | None) -> list[str] | None:
    return None if paths is None else list(paths)


def _run_all(env: CodingEnv, *requests: tuple[str, dict[str, Any], bytes]) -> list[bytes]:
    """Execute several commands of the program at once; return what each of them writes."""
    output = _execute(env, *requests).stdout
    results, position = [], 0
    for _ in requests:
        end = output.index(b"\n", position)
        size = int(output[position:end])
        results.append(output[end + 1 : end + 1 + size])
        position = end + 1 + size
    return results


def _run(env: CodingEnv, command: str, arguments: dict[str, Any], *, cwd: str | None = "/") -> ProcessResult:
    return _execute(env, (command, arguments, b""), cwd=cwd)


def _execute(env: CodingEnv, *requests: tuple[str, dict[str, Any], bytes], cwd: str | None = "/") -> ProcessResult:
    head = json.dumps([(command, arguments, len(data)) for command, arguments, data in requests]).encode()
    result = env.exec(
        [_INTERPRETER, "-I", "-S", "-c", _PROGRAM],
        stdin=b"".join([head, b"\n", *(data for *_, data in requests)]),
        user="root",
        cwd=cwd,
        timeout=_TIMEOUT,
        max_output_bytes=_LARGEST,
    )
    if result.exit_code != 0 or result.dropped_stdout:
        lines = result.stderr_text.strip().splitlines() or ["it was ended"]
        raise ChangesError(lines[-1].removeprefix("ValueError: "))
    return result
