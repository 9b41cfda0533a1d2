"""A session's directory: the working directory, the home and the place for temporary files of its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

__all__ = ["HOME", "TEMPORARY", "WORK", "clear", "empty", "remove_if_bare", "repair"]

WORK = "work"
HOME = "home"
TEMPORARY = "tmp"


def remove_if_bare(workspace: str) -> bool:
    """Remove the directories in ``workspace`` if nothing is in them; says whether ``workspace`` is empty now."""
    with contextlib.suppress(OSError):
        for name in (WORK, HOME, TEMPORARY):
            os.rmdir(os.path.join(workspace, name))
        return not os.listdir(workspace)
    return False


def empty(workspace: str) -> None:
    """Remove everything in ``workspace`` and make its directories anew.

    Raises:
        OSError: Something could not be removed or made.
    """
    Path(workspace).chmod(0o700)
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
    root = Path(workspace)
    for directory in (root, *(root / name for name in (WORK, HOME, TEMPORARY))):
        if not stat.S_ISDIR(_mode(directory)):
            directory.unlink(missing_ok=True)
            directory.mkdir()
        directory.chmod(0o700)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
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
