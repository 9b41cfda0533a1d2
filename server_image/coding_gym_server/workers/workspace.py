"""A session's directory: the working directory, the home and the place for temporary files of its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

__all__ = ["AUTHORITY", "HOME", "TEMPORARY", "WORK", "clear", "empty", "remove_if_bare", "repair"]

WORK = "work"
HOME = "home"
TEMPORARY = "tmp"
AUTHORITY = "Xauthority"
"""The file that admits programs to the session's screen."""


def remove_if_bare(workspace: str) -> bool:
    """Remove the directories in ``workspace`` if nothing is in them; says whether ``workspace`` is empty now."""
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
    """Remove everything in ``workspace`` and make its directories anew.

    Raises:
        OSError: Something could not be removed or made.
    """
    os.chmod(workspace, 0o700)
    clear(Path(workspace))
    for attribute in os.listxattr(workspace):
        os.removexattr(workspace, attribute)
    os.utime(workspace)
    repair(workspace)


def repair(workspace: str) -> None:
    """Make the directories that are missing, and make them usable; what else is in their place, such as a link, goes.

    Raises:
        OSError: The disk is full.
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
    """Remove everything in a directory, whatever its permissions and its depth.

    Raises:
        OSError: Something could not be removed.
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
    # Directories without permissions, or nested deeper than Python recurses. Other sessions may read command lines, so the
    # path is in none.
    path.chmod(0o700)
    subprocess.run(["chmod", "-R", "u+rwX", "."], cwd=path, check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["find", ".", "-mindepth", "1", "-delete"], cwd=path, check=False, stderr=subprocess.DEVNULL)
    path.rmdir()
