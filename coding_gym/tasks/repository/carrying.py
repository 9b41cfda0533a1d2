"""Transfer of the changes of one session to another one of the same image, and of files to a session."""

from __future__ import annotations

import base64
import contextlib
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coding_gym.client.processes import SERVER_PYTHON, Process, ProcessResult, RunKwargs
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ProtocolError
from coding_gym.sandbox import Sandbox
from coding_gym.tasks.repository import tree_program

__all__ = [
    "ChangesError",
    "Prepared",
    "arrange",
    "carry_changes",
    "changed_paths",
    "prepare",
    "read_file",
    "working_directory",
]

_PROGRAM = Path(tree_program.__file__).read_text(encoding="utf-8")
_COMMAND = [*SERVER_PYTHON, _PROGRAM]

_TIMEOUT = 300.0
_ATTEMPTS = 3
_LARGEST = 256 << 20
_NEVER_CARRIED = (".git", "__pycache__")
_PIECE_BYTES = 1 << 20
_Request = tuple[str, dict[str, Any]]
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
    paths: list[str] = json.loads(_run(env, "changed", _since(prepared)).stdout)
    return paths


def arrange(env: CodingEnv, files: Mapping[str, bytes], *, removed: Sequence[str] = ()) -> None:
    """Write files in a session that all users can read and execute.

    Args:
        env: The session.
        files: Content by absolute path; what is in their place is removed. Paths that end with a slash are directories that all
            users can write.
        removed: Absolute paths of what is removed before.

    Raises:
        ChangesError: If something does not fit into the session.
    """
    _execute(env, *_arrangements(files, removed))


def carry_changes(
    agent: CodingEnv,
    env: CodingEnv,
    prepared: Prepared,
    files: Mapping[str, bytes],
    *,
    removed: Sequence[str],
    kept: Sequence[str],
    max_bytes: int,
) -> None:
    """Make the changes of a session in another one of the same image, and then do what ``arrange`` does.

    Args:
        agent: The session that has changed, of which other programs should have ended.
        env: The other one.
        prepared: State of the latter in the beginning.
        files: As for ``arrange``.
        removed: As for ``arrange``.
        kept: Further real paths that changes do not touch.
        max_bytes: Maximum size of what has changed, without holes in files.

    Raises:
        ChangesError: If it is exceeded, the session of the changes keeps its files from being read, its changes are malformed,
            or something does not fit into the other session.
    """
    applied = {"directories": prepared.directories, "kept": [*prepared.kept, *kept], "excluded": _NEVER_CARRIED}
    with (
        _start_of_changed(agent, ("collect", {**_since(prepared), "max_bytes": max_bytes})) as source,
        _start(env, ("apply", applied), *_arrangements(files, removed), keep_stdin_open=True) as target,
    ):
        try:
            # A program that has failed reads no more.
            with contextlib.suppress(ProtocolError):
                for piece in _pieces(source):
                    target.write(piece)
                target.close_stdin()
            # The other one fails, too, if the changes are not complete.
            _check(source.wait())
            _check(target.wait())
        except BaseException:
            source.abandon()
            target.abandon()
            raise


def read_file(env: CodingEnv, path: str, *, max_bytes: int) -> bytes:
    """Return the content of a file, up to a number of bytes.

    Raises:
        ChangesError: If there is none.
    """
    return _run(env, "read", {"path": path, "limit": max_bytes}).stdout


def working_directory(env: CodingEnv) -> str:
    """Return the working directory of the image of a session."""
    sandbox = env.sandbox
    if sandbox not in _directories:
        _directories[sandbox] = _run(env, "where", {}, cwd=None).stdout_text
    return _directories[sandbox]


def _since(prepared: Prepared) -> dict[str, Any]:
    """Return the arguments of programs that compare a session with its initial state."""
    excluded = [*_NEVER_CARRIED, *prepared.kept]
    return {"before": prepared.before, "directories": prepared.directories, "excluded": excluded}


def _arrangements(files: Mapping[str, bytes], removed: Sequence[str]) -> list[_Request]:
    content = {path: [base64.b64encode(data).decode(), _MODE] for path, data in files.items()}
    return [("remove", {"paths": list(removed)}), ("write", {"files": content})]


def _pieces(process: Process) -> Iterator[bytes]:
    """Yield the output of a process as it arrives, in larger pieces."""
    process.keeps_stdout = False
    parts: list[bytes] = []
    for output in process:
        parts.append(output.stdout)
        if sum(map(len, parts)) >= _PIECE_BYTES:
            yield b"".join(parts)
            parts.clear()
    yield b"".join(parts)


def _run(env: CodingEnv, command: str, arguments: dict[str, Any], *, cwd: str | None = "/") -> ProcessResult:
    return _execute(env, (command, arguments), cwd=cwd)


def _execute(env: CodingEnv, *requests: _Request, cwd: str | None = "/") -> ProcessResult:
    return _check(env.exec(_COMMAND, **_options(requests, cwd)))


def _start_of_changed(env: CodingEnv, request: _Request) -> Process:
    """Start the program in a session of changes.

    Raises:
        ChangesError: If the session starts no programs.
    """
    reason: object = None
    for _ in range(_ATTEMPTS):
        try:
            return _start(env, request)
        except ProtocolError as error:
            # Root of the session can kill what starts its programs, which is replaced, unless its interpreter is gone.
            reason = error
    message = f"the session of the changes starts no programs any more: {reason}"
    raise ChangesError(message)


def _start(env: CodingEnv, *requests: _Request, keep_stdin_open: bool = False) -> Process:
    return env.processes.start(_COMMAND, keep_stdin_open=keep_stdin_open, **_options(requests, "/"))


def _options(requests: Sequence[_Request], cwd: str | None) -> RunKwargs:
    return {
        # Names of files need not be Unicode, which this encoder escapes.
        "stdin": json.dumps(requests).encode() + b"\n",
        # By its id: a program may have removed its name.
        "user": "0",
        "cwd": cwd,
        "timeout": _TIMEOUT,
        "max_output_bytes": _LARGEST,
    }


def _check(result: ProcessResult) -> ProcessResult:
    """Return the result of a program that has succeeded.

    Raises:
        ChangesError: If it has not.
    """
    if result.exit_code != 0 or result.dropped_stdout:
        lines = result.stderr_text.strip().splitlines() or ["it was ended"]
        raise ChangesError(lines[-1].removeprefix("ValueError: "))
    return result
