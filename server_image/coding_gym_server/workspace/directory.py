"""Session workspace: working directory, home directory and directory for temporary files."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

__all__ = ["AUTHORITY", "HOME", "TEMPORARY", "WORK", "clear", "empty", "remove_if_bare", "repair", "reset_attributes"]

WORK = "work"
HOME = "home"
TEMPORARY = "tmp"
AUTHORITY = "Xauthority"
"""X authority file of the session's screen."""


def remove_if_bare(workspace: str) -> bool:
    """Remove the directories in ``workspace`` if they are empty; return whether ``workspace`` is empty afterwards."""
    with contextlib.suppress(OSError):
        for name in (WORK, HOME, TEMPORARY):
            os.rmdir(f"{workspace}/{name}")
        names = os.listdir(workspace)
        if names == [AUTHORITY]:
            os.unlink(f"{workspace}/{AUTHORITY}")
            return True
        return not names
    return False


def empty(workspace: str) -> None:
    """Remove all content of ``workspace`` and recreate its directories.

    Raises:
        OSError: If an entry cannot be removed or a directory cannot be created.
    """
    os.chmod(workspace, 0o700)
    clear(Path(workspace))
    reset_attributes(workspace)
    repair(workspace)


def reset_attributes(directory: str) -> None:
    """Remove the extended attributes of a directory and reset its times.

    Raises:
        OSError: If an attribute cannot be removed.
    """
    for attribute in os.listxattr(directory):
        os.removexattr(directory, attribute)
    os.utime(directory)


def repair(workspace: str) -> None:
    """Create missing directories and reset their modes. Other files in their place, such as links, are removed.

    Raises:
        OSError: If a directory cannot be created, for example because the disk is full.
    """
    for directory in (workspace, *(f"{workspace}/{name}" for name in (WORK, HOME, TEMPORARY))):
        mode = _mode(directory)
        if not stat.S_ISDIR(mode):
            if mode:
                os.unlink(directory)
            os.mkdir(directory)
        os.chmod(directory, 0o700)


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def clear(directory: Path) -> None:
    """Remove all content of a directory, regardless of permissions and nesting depth.

    Raises:
        OSError: If an entry cannot be removed.
    """
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(directory / entry.name)
        else:
            os.unlink(entry.path)


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()
        return
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(path)
        return
    # For directories without permissions, or nested deeper than Python recurses. Other sessions can read command lines, so
    # the path is passed as the working directory.
    path.chmod(0o700)
    subprocess.run(["chmod", "-R", "u+rwX", "."], cwd=path, check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["find", ".", "-mindepth", "1", "-delete"], cwd=path, check=False, stderr=subprocess.DEVNULL)
    path.rmdir()
