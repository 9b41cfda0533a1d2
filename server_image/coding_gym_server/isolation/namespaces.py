"""Linux namespaces for a server outside a container, which hide what Landlock does not restrict.

Landlock does not restrict connecting to Unix sockets by path, such as a container engine's in ``/run`` or a terminal
multiplexer's in ``/tmp``, nor datagrams, nor changes of the mode, owner or times of files. In separate namespaces the sandbox
sees only the system directories and the directories passed to it, an empty ``/dev/shm``, no network, and a file system that
is read-only except for its own directories (see namespaces(7), user_namespaces(7), mount_setattr(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["disown", "enter"]

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV = 0b110
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18

_NR_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1

_PRESERVED = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sbin", "sys", "usr"}
_EMPTY_DIRECTORIES = ("/dev/shm", "/sys/kernel/debug", "/sys/kernel/tracing")
_WRITABLE = ("/dev/shm", "/proc", "/tmp")

_X_SOCKETS = "/tmp/.X11-unix"

_NOBODY_UID = 65534
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_libc = ctypes.CDLL(None, use_errno=True)


def enter(*, keep: list[str], readable: Iterable[str], network: bool) -> None:
    """Move the calling, single-threaded process into new namespaces.

    Args:
        keep: Directories that stay accessible and writable, even below emptied directories.
        readable: Directories that stay accessible read-only, even below emptied directories.
        network: Whether the host's network stays accessible.

    Raises:
        OSError: If the kernel or its configuration does not permit it.
    """
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS | _CLONE_NEWIPC | (0 if network else _CLONE_NEWNET) | (0 if user == 0 else _CLONE_NEWUSER)
    _check("unshare", _libc.unshare(flags))
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if not network:
        _bring_up_loopback()
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    emptied = [entry.path for entry in os.scandir("/") if entry.name not in _PRESERVED and entry.is_dir(follow_symlinks=False)]
    below = tuple(f"{directory}/" for directory in emptied)
    preserved = [path for path in sorted({*readable, *map(os.path.realpath, readable)}) if path.startswith(below)]
    kept = [(directory, os.open(directory, os.O_PATH)) for directory in filter(os.path.isdir, (*preserved, *keep))]
    os.chdir("/")
    for directory in filter(os.path.isdir, (*emptied, *_EMPTY_DIRECTORIES)):
        _mount("tmpfs", directory, "tmpfs", _MS_NOSUID_NODEV, "mode=1777")
        disown(directory)
    # X clients expect display sockets there.
    with contextlib.suppress(OSError):
        os.mkdir(_X_SOCKETS)
        os.chmod(_X_SOCKETS, 0o1777)  # noqa: S103 - as /tmp itself, of which this is a part
        disown(_X_SOCKETS)
    for directory, descriptor in kept:
        os.makedirs(directory, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", directory, None, _MS_BIND | _MS_REC)
        os.close(descriptor)
    _set_read_only("/", True, _AT_RECURSIVE)
    for directory in filter(os.path.isdir, (*keep, *_WRITABLE)):
        _set_read_only(directory, False)


def disown(directory: str) -> None:
    """Give a directory to the user ``nobody`` if permitted: sessions that run as its owner could change its mode."""
    with contextlib.suppress(OSError):
        os.chown(directory, _NOBODY_UID, -1)


def _bring_up_loopback() -> None:
    """Enable 127.0.0.1, which Jupyter kernels without IPC support require; it is down in a new namespace."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = (part.encode() if part is not None else None for part in (source, target, kind))
    _check(f"mount {target}", _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() if options else None))


def _set_read_only(target: str, read_only: bool, flags: int = 0) -> None:
    on, off = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = struct.pack("=QQQQ", on, off, 0, 0)
    result = _libc.syscall(_NR_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, attributes, ctypes.c_size_t(len(attributes)))
    _check(f"mount_setattr {target}", result)


def _check(operation: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
