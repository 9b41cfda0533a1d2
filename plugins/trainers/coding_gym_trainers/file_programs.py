"""Files at any path of a sandbox, which its own programs read and write: ``cat``, ``sh`` and ``tar``."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from coding_gym.client.processes import ProcessResult

__all__ = ["LARGEST", "Run", "download_directory", "read_file", "upload_directory", "write_file"]

LARGEST = 256 << 20
"""Maximum size of a file, or of an archive, in bytes."""

Run = Callable[..., Awaitable[ProcessResult]]
"""Runs a program and its arguments with options of ``RunKwargs``, as ``AsyncCodingEnv.exec`` does."""

_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"'
# The message of ls ends with the reason, that of tar does not.
_PACK = 'ls -- "$1/" >/dev/null && tar -cf - --ignore-failed-read -C "$1" .'
_UNPACK = 'mkdir -p -- "$1" && tar -xf - --no-same-owner -C "$1"'
_TIMEOUT = 600
"""Timeout in seconds: a file may be a pipe without another end."""

# What programs print at the end of their messages.
_ERRORS = {
    "No such file or directory": errno.ENOENT,
    "Not a directory": errno.ENOENT,
    "Permission denied": errno.EACCES,
    "Operation not permitted": errno.EPERM,
    "Read-only file system": errno.EACCES,
    "Is a directory": errno.EISDIR,
    "No space left on device": errno.ENOSPC,
    "File name too long": errno.ENAMETOOLONG,
}


async def read_file(run: Run, file: str, *, max_bytes: int = LARGEST) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: If it cannot be read: ``FileNotFoundError``, ``IsADirectoryError``, ``PermissionError`` ... The number is
            ``EFBIG`` if it is larger than ``max_bytes``.
        TimeoutError: If that takes more than ten minutes.
    """
    return await _output(run, file, ["cat", "--", file], max_bytes)


async def write_file(run: Run, file: str, content: str | bytes) -> None:
    """Write a file; missing directories are created.

    Raises:
        OSError: If it cannot be written: ``IsADirectoryError``, ``PermissionError``, a full disk ...
        TimeoutError: If that takes more than ten minutes.
    """
    _check(file, await run(["sh", "-c", _WRITE, "sh", file], stdin=content, timeout=_TIMEOUT))


async def upload_directory(run: Run, source: str | os.PathLike[str], target: str) -> None:
    """Copy the content of a directory of this machine into a directory of the sandbox, which is created if it is missing.

    Raises:
        OSError: If it cannot be read or written.
        TimeoutError: If that takes more than ten minutes.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source, arcname=".")
    _check(target, await run(["sh", "-c", _UNPACK, "sh", target], stdin=archive.getvalue(), timeout=_TIMEOUT))


async def download_directory(run: Run, source: str, target: str | os.PathLike[str]) -> None:
    """Copy the content of a directory of the sandbox into a directory of this machine, which is created if it is missing.

    What is neither a file nor a directory is left out, as are links that lead out of the directory, and what cannot be read.

    Raises:
        OSError: If it cannot be read, or is larger than ``LARGEST``.
        TimeoutError: If that takes more than ten minutes.
    """
    packed = await _output(run, source, ["sh", "-c", _PACK, "sh", source], LARGEST)
    Path(target).mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(target, filter=_harmless)  # noqa: S202 - the filter lets nothing leave the directory


def _harmless(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo | None:
    """Return a member that stays in the directory, None for any other: code of the sandbox may have made the archive."""
    try:
        return None if member.isdev() else tarfile.data_filter(member, target)
    except tarfile.FilterError:
        return None


async def _output(run: Run, file: str, command: list[str], max_bytes: int) -> bytes:
    result = await run(command, timeout=_TIMEOUT, max_output_bytes=max_bytes)
    _check(file, result)
    if result.dropped_stdout:
        raise OSError(errno.EFBIG, "File too large", file)
    return result.stdout


def _check(file: str, result: ProcessResult) -> None:
    """Raise the error of a program that reads or writes a file."""
    if result.timed_out:
        message = f"{file} could not be read or written within {_TIMEOUT} s"
        raise TimeoutError(message)
    if result.exit_code != 0:
        text = result.stderr_text.strip()
        for reason, number in _ERRORS.items():
            if text.endswith(reason):
                # Creates the subclass that corresponds to the number.
                raise OSError(number, reason, file)
        message = f"{file}: {text}"
        raise OSError(message)
