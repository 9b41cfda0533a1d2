"""``WorkspaceFiles``: access of tests to the files of a submission."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

__all__ = ["WorkspaceFiles"]

_MAX_FILE_BYTES = 64 << 20


class WorkspaceFiles:
    """File access to the submission's working directory, available to tests under the name ``workspace``.

    Args:
        own: Names of files that listings leave out: those that run the tests.
    """

    def __init__(self, own: Collection[str] = ()) -> None:
        self._own = own

    def read_text(self, path: str) -> str:
        """Return the content of a UTF-8 text file."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file, in bytes."""
        # Opening a pipe without a writer must not block, and reading a device must not continue indefinitely.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                message = f"{path} is not a regular file"
                raise OSError(message)
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            message = f"{path} has more than {_MAX_FILE_BYTES} bytes"
            raise OSError(message)
        return data

    def write_text(self, path: str, text: str) -> None:
        """Write a text file in UTF-8; creates missing directories."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a binary file; creates missing directories."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return Path(path).exists()

    def listdir(self, path: str = ".") -> list[str]:
        """Return the sorted names in a directory."""
        names = os.listdir(path)
        is_top = os.path.samefile(path, ".")
        return sorted(name for name in names if not (is_top and name in self._own))
