"""Reading of several files of a workspace at once, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from coding_gym_server.workspace.file_errors import FilesError, NotFoundError, StorageError
from coding_gym_server.workspace.files import Workspace

__all__ = ["MAX_FETCHED_BYTES", "read_files"]

MAX_FETCHED_BYTES = 16 << 20
"""Maximum total size of the files that are read at once."""


def read_files(directory: Path, paths: Iterable[str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Read files of a workspace; missing ones are omitted. Blocking.

    Args:
        directory: The workspace.
        paths: Paths in the workspace.

    Raises:
        StorageError: If reading fails for another reason than the path.

    Returns:
        The contents by path, and the reasons for which other files that exist were not read.
    """
    workspace = Workspace(directory, home=str(directory))
    contents: dict[str, bytes] = {}
    refused = []
    left = MAX_FETCHED_BYTES
    for path in dict.fromkeys(paths):
        try:
            contents[path] = _read(workspace, path, left)
        except NotFoundError:
            continue
        except StorageError:
            raise
        except FilesError as error:
            refused.append(str(error))
        else:
            left -= len(contents[path])
    return contents, tuple(refused)


def _read(workspace: Workspace, path: str, limit: int) -> bytes:
    with open(workspace.open(path), "rb") as file:
        # A sparse file can be larger than the disk.
        if os.fstat(file.fileno()).st_size > limit:
            message = f"The requested files have more than {MAX_FETCHED_BYTES:,} bytes: {path}"
            raise FilesError(message)
        return file.read(limit)
