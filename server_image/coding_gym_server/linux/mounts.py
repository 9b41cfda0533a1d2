"""Namespaces and mounts (see namespaces(7), mount(2), fsopen(2), open_tree(2), move_mount(2), mount_setattr(2))."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterable

from coding_gym_server.reasons import explain

__all__ = [
    "NEW_HOST_NAME",
    "NEW_IPC",
    "NEW_MOUNTS",
    "NEW_NETWORK",
    "NEW_PROCESSES",
    "NEW_USERS",
    "attach",
    "bind",
    "clone_tree",
    "disconnect",
    "join",
    "make_private",
    "make_proc",
    "map_owner",
    "mask",
    "mount_devpts",
    "mount_overlay",
    "mount_tmpfs",
    "move",
    "protect",
    "read_only",
    "seal",
    "unshare",
]

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000

_MS_RDONLY = 1
_MS_NOSUID_NODEV = 0b110
_MS_NOEXEC = 0b1000
_MS_NOSUID_NOEXEC = 0b1010
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_MOVE = 8192
_MS_REC = 16384
_MS_PRIVATE = 1 << 18

_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1 << 10, "nodiratime": 1 << 11, "relatime": 1 << 21}
"""Flags of mount options, which a user namespace must repeat to change others."""

_NR_OPEN_TREE, _NR_MOVE_MOUNT, _NR_FSOPEN, _NR_FSCONFIG, _NR_FSMOUNT, _NR_MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_FROM_DESCRIPTOR = 4
_CREATE = 6
_CLOSE_ON_EXEC = 1
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID_NODEV_NOEXEC = 0b1110
_MOUNT_ATTR_IDMAP = 0x00100000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Create namespaces for the calling, single-threaded process.

    Args:
        flags: Any of the ``NEW_`` constants of this module (see unshare(2)).

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    _check("unshare", _libc.unshare(flags))


def join(namespace: int, kind: int) -> None:
    """Move the calling, single-threaded process into a namespace.

    Args:
        namespace: Descriptor of the namespace.
        kind: The one of the ``NEW_`` constants of this module that the namespace was created with (see setns(2)).

    Raises:
        OSError: If the process has no capabilities in the user namespace that owns it, or a seccomp filter does not permit it.
    """
    _check("setns", _libc.setns(namespace, kind))


def make_private() -> None:
    """Stop the propagation of mounts between the calling process's mount namespace and others."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def mount_tmpfs(target: str, options: str) -> None:
    """Mount a new tmpfs (see tmpfs(5)).

    Args:
        target: The mount point.
        options: Mount options, such as ``mode=1777``.
    """
    _mount("tmpfs", target, "tmpfs", _MS_NOSUID_NODEV, options)


def mount_devpts(target: str, limit: int) -> None:
    """Mount a new instance of devpts, with its own pseudoterminals.

    Args:
        target: The mount point.
        limit: Maximum number of pseudoterminals.
    """
    _mount("devpts", target, "devpts", _MS_NOSUID_NOEXEC, f"newinstance,ptmxmode=0666,mode=0620,max={limit}")


def mount_overlay(target: str, *, lower: str, upper: str, work: str) -> None:
    """Mount an overlay, in which the changes of a directory are in another one (user namespaces may since Linux 5.11).

    Args:
        target: The mount point.
        lower: The directory, which stays unchanged.
        upper: Directory of the changes.
        work: Empty directory in the same file system as ``upper``.
    """
    # Other extended attributes than those of users are out of reach of a user namespace.
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    _mount("overlay", target, "overlay", _MS_NOSUID_NODEV, options)


def disconnect(directory: str, empty: str) -> None:
    """Cover a directory by a read-only overlay of itself, in which its sockets and FIFOs lead nowhere.

    Args:
        directory: The directory. What is mounted below it is not visible any more.
        empty: Empty directory, since an overlay that is read-only has at least two layers.
    """
    _mount("overlay", directory, "overlay", _MS_NOSUID_NODEV, f"lowerdir={directory}:{empty},userxattr")


def move(source: str, target: str) -> None:
    """Move a mount, with the mounts below it, to another mount point."""
    _mount(source, target, None, _MS_MOVE)


def bind(source: str, target: str, *, recursive: bool = False) -> None:
    """Make a directory visible at another path."""
    _mount(source, target, None, _MS_BIND | (_MS_REC if recursive else 0))


def protect(*writable: str) -> None:
    """Make all mounts of the calling process's mount namespace read-only, except for some.

    Args:
        *writable: Mount points; those that do not exist are ignored.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    try:
        _set_attributes(_AT_FDCWD, "/", _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0)
    except OSError as error:
        # Linux 5.12 has added it.
        if error.errno != errno.ENOSYS:
            raise
        _protect_each(writable)
        return
    for directory in filter(os.path.isdir, writable):
        _set_attributes(_AT_FDCWD, directory, 0, 0, _MOUNT_ATTR_RDONLY)


def _protect_each(writable: Iterable[str]) -> None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        # Of several mounts at a path, the last one is visible.
        found = {fields[4]: fields[5].split(",") for fields in map(str.split, lines)}
    for escaped, options in found.items():
        path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped)
        if path in writable:
            continue
        flags = sum(_FLAGS.get(option, 0) for option in options)
        try:
            _mount("none", path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | flags)
        except OSError as error:
            # Hidden by another mount, or below a directory that the user may not enter.
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.EINVAL):
                raise


def read_only(*paths: str) -> None:
    """Make files and directories read-only by mounting each over itself; those that do not exist are ignored."""
    for path in filter(os.path.exists, paths):
        bind(path, path)
        seal(path)


def seal(path: str) -> None:
    """Make a mount read-only.

    Args:
        path: The mount point.
    """
    _mount("none", path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID_NODEV | _MS_NOEXEC)


def mask(*paths: str) -> None:
    """Hide what files and directories contain, by empty ones; those that do not exist are ignored."""
    for path in filter(os.path.exists, paths):
        if os.path.isdir(path):
            mount_tmpfs(path, "mode=0555,nr_inodes=1")
        else:
            bind(os.devnull, path)


def make_proc() -> int:
    """Return a descriptor of a new mount, not attached yet, with the processes of the calling process's pid namespace.

    The kernel permits it only where the mount namespace has a ``/proc`` of which nothing is hidden.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    context = _call("fsopen proc", _NR_FSOPEN, b"proc", _CLOSE_ON_EXEC)
    try:
        _call("fsconfig proc", _NR_FSCONFIG, context, _CREATE, None, None, 0)
        return _call("mount proc", _NR_FSMOUNT, context, _CLOSE_ON_EXEC, _MOUNT_ATTR_NOSUID_NODEV_NOEXEC)
    finally:
        os.close(context)


def clone_tree(path: str, *, directory: int = _AT_FDCWD) -> int:
    """Return a descriptor of a copy of a mount, which is attached to no mount namespace.

    Args:
        path: A directory in the mount, which is the root of the copy.
        directory: Descriptor of the directory that a relative path begins at. Defaults to the working directory.
    """
    return _call(f"open_tree {path}", _NR_OPEN_TREE, directory, path.encode(), _OPEN_TREE_CLONE | os.O_CLOEXEC)


def attach(tree: int, target: str) -> None:
    """Attach a detached mount, which may come from another mount namespace, to that of the calling process.

    Args:
        tree: Descriptor of the mount.
        target: The mount point.
    """
    result = _libc.syscall(_NR_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_FROM_DESCRIPTOR)
    _check(f"move_mount {target}", result)


def map_owner(tree: int, namespace: int) -> None:
    """Map the owners of files in a detached mount (see "ID-mapped mounts" in mount_setattr(2); tmpfs since Linux 6.3).

    Args:
        tree: Descriptor of the mount.
        namespace: Descriptor of the user namespace whose map applies.
    """
    _set_attributes(tree, "", _AT_EMPTY_PATH, _MOUNT_ATTR_IDMAP, 0, namespace)


def _set_attributes(directory: int, target: str, flags: int, on: int, off: int, namespace: int = 0) -> None:
    attributes = struct.pack("=QQQQ", on, off, 0, namespace)
    result = _libc.syscall(_NR_MOUNT_SETATTR, directory, target.encode(), flags, attributes, ctypes.c_size_t(len(attributes)))
    _check(f"mount_setattr {target}", result)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = (part.encode() if part is not None else None for part in (source, target, kind))
    _check(f"mount {target}", _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() if options else None))


def _call(operation: str, *arguments: object) -> int:
    result: int = _libc.syscall(*arguments)
    _check(operation, min(result, 0))
    return result


def _check(operation: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, explain(operation, number))
