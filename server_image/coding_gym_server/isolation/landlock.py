"""Landlock: an unprivileged process restricts itself and all its descendants.

Called through ctypes because glibc has no wrappers. The interface is that of ``include/uapi/linux/landlock.h``; the system
call numbers are the same on every architecture. Layers are cumulative: a domain can be narrowed, never left.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from coding_gym_server.linux import landlock_domain

__all__ = ["Rules", "abi_version", "restrict_self"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_NR_CREATE_RULESET = 444
_NR_ADD_RULE = 445
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1


class _Fs:
    # Integers, because enum flags are slow and write to many memory pages of a process that has just been forked.
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_ALL = (1 << 16) - 1
_READ = _Fs.EXECUTE | _Fs.READ_FILE | _Fs.READ_DIR
_WRITE = _ALL & ~(_Fs.MAKE_CHAR | _Fs.MAKE_BLOCK)
_UNLISTABLE = _Fs.READ_FILE | _Fs.WRITE_FILE | _Fs.TRUNCATE | _Fs.MAKE_REG | _Fs.REMOVE_FILE
_ON_FILES = _Fs.EXECUTE | _Fs.WRITE_FILE | _Fs.READ_FILE | _Fs.TRUNCATE | _Fs.IOCTL_DEV

_SCOPE_ABI = 6
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL = 0b11


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Access that a Landlock domain allows.

    Attributes:
        read: Files and directory trees that may be read and executed. Missing paths are ignored.
        write: Files and directory trees that may be read, executed and modified.
        drop_boxes: Directories in which regular files may be created, opened and removed by name, but not listed.
        files: Whether file access is restricted at all.
    """

    read: Iterable[str] = ()
    write: Iterable[str] = ()
    drop_boxes: Iterable[str] = ()
    files: bool = True


def abi_version() -> int:
    """Return the kernel's Landlock ABI version (signals are scoped since 6), or 0 if Landlock is missing or disabled."""
    version: int = _libc.syscall(_NR_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    return max(version, 0)


def restrict_self(rules: Rules) -> None:
    """Restrict the calling thread and its future children to ``rules``.

    Signals and abstract Unix sockets are scoped to the new domain: processes outside cannot be signaled or connected to.
    Restrictions that the kernel's ABI version does not support are omitted; check ``abi_version`` where that matters.

    Args:
        rules: The access to allow.

    Raises:
        OSError: If Landlock is missing (ENOSYS, EOPNOTSUPP) or the process already has 16 layers (E2BIG).
    """
    ruleset = make_ruleset(rules)
    if ruleset is not None:
        enter(ruleset)


def make_ruleset(rules: Rules) -> int | None:
    """Create a ruleset that this process and its children can ``enter``.

    Args:
        rules: The access to allow.

    Returns:
        The ruleset's descriptor, or None if the rules restrict nothing.

    Raises:
        OSError: If Landlock is missing (ENOSYS, EOPNOTSUPP).
    """
    abi = abi_version()
    # A layer that does not handle REFER always denies moving files between directories.
    handled = _fs_rights_of(abi) if rules.files else _Fs.REFER & _fs_rights_of(abi)
    has_scopes = abi >= _SCOPE_ABI
    if not handled and not has_scopes:
        return None
    # Files, TCP ports, and scopes.
    attributes = struct.pack("QQQ", handled, 0, _SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL)[: 24 if has_scopes else 8]
    ruleset = _call(
        "landlock_create_ruleset", _NR_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    try:
        for paths, rights in ((rules.read, _READ), (rules.write, _WRITE), (rules.drop_boxes, _UNLISTABLE)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        if not rules.files:
            _allow(ruleset, "/", handled)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enter(ruleset: int) -> None:
    """Restrict the calling thread and its future children to a ruleset, and close its descriptor.

    Args:
        ruleset: Descriptor from ``make_ruleset``.

    Raises:
        OSError: If the process already has 16 layers (E2BIG).
    """
    try:
        landlock_domain.enter(ruleset)
    finally:
        os.close(ruleset)


def _fs_rights_of(abi: int) -> int:
    known = _ALL
    if abi < 5:
        known &= ~_Fs.IOCTL_DEV
    if abi < 3:
        known &= ~_Fs.TRUNCATE
    if abi < 2:
        known &= ~_Fs.REFER
    return known


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _ON_FILES
        if rights:
            _add_rule(path, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, descriptor))
    finally:
        os.close(descriptor)


def _add_rule(operation: str, ruleset: int, kind: int, rule: bytes) -> None:
    _call(f"landlock_add_rule({operation})", _NR_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(kind), rule, ctypes.c_uint32(0))


def _call(operation: str, *arguments: object) -> int:
    result: int = _libc.syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
    return result
