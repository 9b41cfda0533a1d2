"""Errors of clients' operations on files."""

from __future__ import annotations

import errno

__all__ = ["STORAGE_ERRORS", "EpisodeEndedError", "FilesError", "NotFoundError", "StorageError", "file_error", "outside_error"]

STORAGE_ERRORS = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE),
        *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR),
    )
)
"""Numbers of the errors that say nothing about a path, nor about the client that has sent it."""


class FilesError(ValueError):
    """A client's path is invalid for the requested operation."""


class StorageError(FilesError):
    """A file cannot be read or written although nothing is wrong with its path, for example because the disk is full."""


class EpisodeEndedError(FilesError):
    """The episode whose files an operation refers to has ended before it began."""

    def __init__(self) -> None:
        super().__init__("The episode has ended, and its files with it: repeat the request for those of the next episode")


class NotFoundError(FilesError):
    """A path does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Not found: {path}")


def outside_error(path: str) -> FilesError:
    """Return the error of a path that leads out of the workspace."""
    return FilesError(f"Path outside workspace: {path}")


def file_error(error: OSError, path: str) -> FilesError:
    """Return the error of an operation on a file as one for clients.

    Args:
        error: The error.
        path: The client's path of the file.
    """
    match error.errno:
        case errno.EXDEV:
            return outside_error(path)
        case errno.ENOENT:
            return NotFoundError(path)
        case errno.ENXIO:
            return FilesError(f"Not a file: {path}")
    kind = StorageError if error.errno in STORAGE_ERRORS else FilesError
    return kind(f"{error.strerror}: {path}")
