"""Root of a session: a user namespace with the users of the container, and a file system that covers the container's.

In that namespace, root has capabilities over the files and processes of its users. Outside of it, it has none, although its
user is the container's root: so it can change files of the image, but in an overlay in the session's own file system, whose
size is limited. What belongs to the server and to the launcher has users that are not in the namespace.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from coding_gym_server.linux import mounts, user_namespaces

__all__ = ["ROOT", "become", "cover", "users_of_zygotes"]

ROOT = 1 << 16
"""Id of a session's root as the zygotes see it. The ids of its other users follow in the same order."""

_USERS = 1 << 16
_TOP, _UPPER, _WORK = "overlay", "overlay-upper", "overlay-work"
_COPIED = "/etc/"
"""Small, with mounts of the engine; an overlay for each of its many directories would be too much."""

_PROGRAMS_OF_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_SYSTEM_MOUNTS = ("/dev", "/proc", "/sys")


def users_of_zygotes(others: Iterable[range]) -> list[tuple[int, int, int]]:
    """Return the ids that zygotes need so that sessions can have a root, as a part of the map of their user namespace.

    Args:
        others: Ids of users that no session may become.
    """
    return [(ROOT + part.start, part.start, len(part)) for part in _without(others)]


def become(others: Iterable[range]) -> None:
    """Make the calling, single-threaded process root of a new user namespace, with all capabilities in it, and root's ``PATH``.

    Args:
        others: As for ``users_of_zygotes``.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    namespace = user_namespaces.create([(part.start, ROOT + part.start, len(part)) for part in _without(others)])
    mounts.join(namespace, mounts.NEW_USERS)
    os.close(namespace)
    user_namespaces.become(0)
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *_PROGRAMS_OF_ROOT])


def cover(
    directory: str,
    own: Sequence[tuple[str, str]],
    *,
    changes: str,
    hidden: Collection[str] = (),
    read_only: Collection[str] = (),
) -> None:
    """Cover the root directory of the calling process's mount namespace by one whose files root of a session can change.

    Args:
        directory: Directory of the new mount points and of copied files.
        changes: Directory of the other changed files, in a file system that has room for them, and attributes of users.
        own: Directories to mount, each with its mount point, whose content is copied into it.
        hidden: Directories whose content is not for the session.
        read_only: Mount points whose content it may not change.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    # In some images, a directory above is a link.
    own = [(source, os.path.realpath(target)) for source, target in own]
    top = f"{directory}/{_TOP}"
    _make(top)
    mounts.bind(top, top)
    mounted = _mount_points()
    servers = {path for path in mounted if sys.prefix.startswith(f"{path}/")} - {"/"}
    parts = _Parts(mounted, empty={*hidden, *(target for _, target in own)}, kept={*_SYSTEM_MOUNTS, *read_only, *servers})
    _cover_parts("/", top, changes, parts)
    for source, target in own:
        if os.path.isdir(target):
            _copy_content(target, source)
        os.makedirs(f"{top}{target}", exist_ok=True)
        mounts.bind(source, f"{top}{target}")
    mounts.move(top, "/")
    # The root directory of a process that joins a mount namespace is the topmost mount.
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    mounts.join(namespace, mounts.NEW_MOUNTS)
    os.close(namespace)


class _Parts(NamedTuple):
    """Parts of a file system that need not be covered.

    Attributes:
        mounted: Its mount points.
        empty: Directories that are to be empty.
        kept: Directories that are to be as they are.
    """

    mounted: set[str]
    empty: set[str]
    kept: set[str]


def _cover_parts(parent: str, top: str, changes: str, parts: _Parts) -> None:
    """Make the content of a directory of the container available below another one, where it exists already."""
    with os.scandir(parent) as entries:
        for entry in entries:
            path, target = entry.path, f"{top}{entry.path}"
            if not entry.is_dir(follow_symlinks=False):
                _copy_file(entry, target)
                continue
            if path in parts.empty:
                # Its content is the server's, or the session has its own.
                _make(target)
                continue
            status = entry.stat(follow_symlinks=False)
            _make(target, status)
            if path in parts.kept:
                mounts.bind(path, target, recursive=True)
            elif f"{path}/".startswith(_COPIED) or any(other.startswith(f"{path}/") for other in parts.mounted | parts.empty):
                # The kernel permits no overlay of what other mounts hide.
                _cover_parts(path, top, changes, parts)
            else:
                upper, work = (f"{changes}/{name}{path}" for name in (_UPPER, _WORK))
                for made in (upper, work):
                    os.makedirs(os.path.dirname(made), exist_ok=True)
                    _make(made, status)
                mounts.mount_overlay(target, lower=path, upper=upper, work=work)


def _make(path: str, like: os.stat_result | None = None) -> None:
    """Make a directory with the owner and the mode of another one, by default those of a root directory."""
    os.mkdir(path)
    os.chown(path, ROOT if like is None else like.st_uid, ROOT if like is None else like.st_gid)
    os.chmod(path, 0o755 if like is None else stat.S_IMODE(like.st_mode))


def _copy_content(source: str, target: str) -> None:
    """Copy what is in a directory, with owners, modes and times, into another one."""
    with os.scandir(source) as entries:
        for entry in entries:
            copy = f"{target}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                _make(copy, status)
                _copy_content(entry.path, copy)
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            else:
                _copy_file(entry, copy)


def _copy_file(entry: os.DirEntry[str], target: str) -> None:
    """Copy a file or a link; others, such as pipes and sockets, are left out."""
    if entry.is_symlink() or entry.is_file():
        shutil.copyfile(entry.path, target, follow_symlinks=False)
        status = entry.stat(follow_symlinks=False)
        os.lchown(target, status.st_uid, status.st_gid)
        shutil.copystat(entry.path, target, follow_symlinks=False)


def _mount_points() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _without(others: Iterable[range]) -> list[range]:
    """Return the ids of the users of a session with a root: those of a container, without others."""
    found, start = [], 0
    for other in sorted(others, key=lambda part: part.start):
        if other.start < _USERS:
            found.append(range(start, other.start))
            start = min(other.stop, _USERS)
    return [part for part in (*found, range(start, _USERS)) if part]
