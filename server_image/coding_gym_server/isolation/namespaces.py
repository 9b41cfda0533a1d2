"""Linux namespaces for a server outside a container, which hide what Landlock does not restrict.

Landlock does not restrict connecting to Unix sockets by path, such as a container engine's in ``/run`` or a terminal
multiplexer's in ``/tmp``, nor datagrams, nor changes of the mode, owner or times of files. In separate namespaces the sandbox
sees only the system directories and the directories passed to it, an empty ``/dev/shm``, no network, and a file system that
is read-only except for its own directories (see namespaces(7), user_namespaces(7), mount_setattr(2)).
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from coding_gym_server.linux import mounts, user_namespaces
from coding_gym_server.linux.network import bring_up_loopback

__all__ = ["BESIDE", "COVERED", "HOST_NAME", "disown", "enter"]

COVERED = "/run/covered"
"""Directory with the readable directories below those that sessions cover by their own, such as ``/tmp/venv``."""

BESIDE = "/run/beside"
"""Directory with a mount point for each of those that sessions cover, for processes that must not cover it."""

_PRESERVED = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sbin", "sys", "usr"}
_EMPTY_DIRECTORIES = ("/sys/kernel/debug", "/sys/kernel/tracing")
_OF_SERVICES = ("/opt", "/usr/local")
"""Directories in which services of the machine may listen."""
_EMPTY = "/run/empty"
_WRITABLE = ("/dev/shm", "/proc", "/tmp")
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_MAX_TERMINALS = 1024

HOST_NAME = "sandbox"
"""The host name, as in containers of the docker provider."""

_USER = {"/etc/passwd": "user:x:{0}:{0}::{1}:/bin/bash\n", "/etc/group": "user:x:{0}:\n"}
"""Entries of a session's user in the lists of users and groups."""

_NOBODY_UID = 65534


def enter(
    *,
    keep: Mapping[str, str],
    readable: Iterable[str],
    covered: Iterable[str],
    network: bool,
    user: int,
    home: str,
    max_inodes: int,
) -> None:
    """Move the calling, single-threaded process into new namespaces.

    Args:
        keep: Directories that stay accessible and writable, each with its path in the namespaces, which is below an emptied
            directory or its own.
        readable: Directories that stay accessible read-only, even below emptied directories.
        covered: Directories that sessions cover by their own. What is readable below is also accessible below ``COVERED``, and
            there is an empty directory for each of them below ``BESIDE``.
        network: Whether the host's network stays accessible.
        user: Id of a session's user as the session sees it, which is added to the list of users.
        home: Home directory of that user.
        max_inodes: Maximum number of files and directories in each emptied directory.

    Raises:
        OSError: If the kernel or its configuration does not permit it.
    """
    own_user, own_group = os.geteuid(), os.getegid()
    if own_user != 0:
        user_namespaces.enter(own_user, own_group)
    mounts.unshare(mounts.NEW_MOUNTS | mounts.NEW_IPC | mounts.NEW_HOST_NAME | (0 if network else mounts.NEW_NETWORK))
    socket.sethostname(HOST_NAME)
    if not network:
        bring_up_loopback()
    mounts.make_private()
    emptied = [entry.path for entry in os.scandir("/") if entry.name not in _PRESERVED and entry.is_dir(follow_symlinks=False)]
    below = tuple(f"{directory}/" for directory in emptied)
    preserved = [path for path in sorted({*readable, *map(os.path.realpath, readable)}) if path.startswith(below)]
    covered = tuple(covered)
    below_covered = tuple(f"{directory}/" for directory in covered)
    moved = [(path, path) for path in preserved]
    moved += [(path, f"{COVERED}{path}") for path in preserved if path.startswith(below_covered)]
    kept = [(target, os.open(path, os.O_PATH)) for path, target in (*moved, *keep.items()) if os.path.isdir(path)]
    os.chdir("/")
    for directory in filter(os.path.isdir, (*emptied, *_EMPTY_DIRECTORIES)):
        mounts.mount_tmpfs(directory, f"mode=1777,nr_inodes={max_inodes}")
        disown(directory)
    mounts.mask(*(entry.path for entry in os.scandir("/") if entry.is_file(follow_symlinks=False)))
    with contextlib.suppress(OSError):
        os.makedirs("/var/tmp", exist_ok=True)
    with contextlib.suppress(OSError):
        # Linux 5.11 has permitted overlays here.
        os.makedirs(_EMPTY)
        for directory in filter(os.path.isdir, _OF_SERVICES):
            mounts.disconnect(directory, _EMPTY)
    for target, descriptor in kept:
        os.makedirs(target, exist_ok=True)
        mounts.bind(f"/proc/self/fd/{descriptor}", target, recursive=True)
        os.close(descriptor)
    for directory in covered:
        os.makedirs(directory, exist_ok=True)
        os.makedirs(f"{BESIDE}{directory}")
    _add_user(user, home)
    _make_devices(max_inodes)
    mounts.protect(*keep.values(), *_WRITABLE)


def _make_devices(max_inodes: int) -> None:
    """Cover the devices, terminals and services of the machine by a ``/dev`` like that of a container."""
    opened = {name: os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC) for name in _DEVICES}
    mounts.mount_tmpfs("/dev", "mode=0755,nr_inodes=32")
    for name, descriptor in opened.items():
        Path(f"/dev/{name}").touch()
        mounts.bind(f"/proc/self/fd/{descriptor}", f"/dev/{name}")
        os.close(descriptor)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for directory in ("/dev/pts", "/dev/shm"):
        os.mkdir(directory)
    mounts.mount_devpts("/dev/pts", _MAX_TERMINALS)
    mounts.mount_tmpfs("/dev/shm", f"mode=1777,nr_inodes={max_inodes}")
    disown("/dev/shm")


def disown(directory: str) -> None:
    """Give a directory to the user ``nobody`` if permitted: sessions that run as its owner could change its mode."""
    with contextlib.suppress(OSError):
        os.chown(directory, _NOBODY_UID, -1)


def _add_user(user: int, home: str) -> None:
    """Add a user to the lists of users and groups, by mounting copies over them."""
    for path, entry in _USER.items():
        with contextlib.suppress(FileNotFoundError):
            content = Path(path).read_bytes().rstrip(b"\n")
            descriptor, copy = tempfile.mkstemp(dir="/tmp")
            with open(descriptor, "wb") as file:
                file.write(b"%b\n%b" % (content, entry.format(user, home).encode()))
            os.chmod(copy, 0o644)
            mounts.bind(copy, path)
            os.unlink(copy)
