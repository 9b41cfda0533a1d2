"""Changes that a program has made to the files of a session."""

from __future__ import annotations

import base64
import difflib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_gym.agents import listing_program
from coding_gym.client.processes import SERVER_PYTHON
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ProtocolError

__all__ = ["FileChange", "FileState", "changes_between", "list_files", "unified_diff"]

_PROGRAM = Path(listing_program.__file__).read_text(encoding="utf-8")
_COMMAND = [*SERVER_PYTHON, _PROGRAM]

_TIMEOUT = 300.0
_MAX_OUTPUT_BYTES = 256 << 20


@dataclass(frozen=True)
class FileState:
    """A file at some time.

    Attributes:
        stamp: What changes with its content, such as its modification time.
        mode: Its permissions.
        content: Its content, the target of a symbolic link; None if it is too large.
    """

    stamp: list[int]
    mode: int
    content: bytes | None


@dataclass(frozen=True)
class FileChange:
    """A file that a program has created, changed or removed.

    Attributes:
        path: Its path in the working directory.
        before: Its content before, None if it did not exist; empty if it is larger than 1 MiB.
        after: Its content now, None if it does not exist; likewise.
    """

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def diff(self) -> str:
        """The change as a unified diff; of a binary file, one line that says so."""
        old = "/dev/null" if self.before is None else f"a/{self.path}"
        new = "/dev/null" if self.after is None else f"b/{self.path}"
        try:
            old_lines, new_lines = (
                (content or b"").decode().splitlines(keepends=True) for content in (self.before, self.after)
            )
        except UnicodeDecodeError:
            return f"Binary files {old} and {new} differ\n"
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old_lines, new_lines, old, new)
        )


def list_files(env: CodingEnv, directory: str, known: Mapping[str, FileState] | None = None) -> dict[str, FileState]:
    """Return the files below a directory of a session, without those of ``.git`` and caches.

    Args:
        env: The session.
        directory: The directory, relative to the working directory.
        known: Files at an earlier time, whose contents are not read again unless they have changed.

    Raises:
        ProtocolError: If they cannot be listed.
        TransportError: If the session is lost.
    """
    stamps = {path: state.stamp for path, state in (known or {}).items()}
    result = env.exec(_COMMAND, cwd=directory, stdin=json.dumps(stamps), timeout=_TIMEOUT, max_output_bytes=_MAX_OUTPUT_BYTES)
    if result.exit_code != 0 or result.dropped_stdout:
        reason = result.lost or ("it has too many files" if result.dropped_stdout else result.stderr_text)
        message = f"The files of {directory!r} cannot be listed: {reason:.1000}"
        raise ProtocolError(message)
    listed: dict[str, Any] = json.loads(zlib.decompress(result.stdout))
    return {path: _state(entry, (known or {}).get(path)) for path, entry in listed.items()}


def _state(entry: Any, known: FileState | None) -> FileState:
    stamp, mode, content = entry
    if content is True:
        assert known is not None
        return FileState(stamp, mode, known.content)
    return FileState(stamp, mode, None if content is None else base64.b64decode(content))


def changes_between(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> tuple[FileChange, ...]:
    """Return the files whose existence, content or permissions have changed, by path."""
    return tuple(
        FileChange(path, _content(before.get(path)), _content(after.get(path)))
        for path in sorted({*before, *after})
        if _identity(before.get(path)) != _identity(after.get(path))
    )


def unified_diff(changes: Iterable[FileChange]) -> str:
    """Return changes as one unified diff."""
    return "".join(change.diff for change in changes)


def _identity(state: FileState | None) -> Any:
    if state is None:
        return None
    return (state.mode, state.stamp) if state.content is None else (state.mode, state.content)


def _content(state: FileState | None) -> bytes | None:
    return None if state is None else state.content or b""
