"""Permanent removal of capabilities, which root of a machine or of a user namespace has (see capabilities(7))."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import struct
from collections.abc import Callable

__all__ = ["drop_all", "keep_for_administration", "keep_setting_ids"]

_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SETGID, _CAP_SETUID = 6, 7
_CAP_SETFCAP = 31
_ADMINISTRATION = sum(
    1 << capability
    for capability in (
        0,  # CAP_CHOWN: give files to other users.
        1,  # CAP_DAC_OVERRIDE: access files of other users.
        3,  # CAP_FOWNER: change their modes and times, and remove them from sticky directories.
        4,  # CAP_FSETID: keep set-user-id and set-group-id bits.
        5,  # CAP_KILL: signal programs of other users.
        _CAP_SETGID,
        _CAP_SETUID,
    )
)
# SECBIT_NOROOT and its lock: uid 0 grants no capabilities, irrevocably.
_NO_ROOT = 0b11

_libc = ctypes.CDLL(None, use_errno=True)


def drop_all() -> None:
    """Drop all capabilities of the calling process and of the programs that it executes, permanently. Idempotent.

    Raises:
        OSError: If the kernel rejects a change.
    """
    _clear_ambient()
    # Permitted only to root of a user namespace; any other user cannot gain capabilities anyway. gVisor has none of these.
    with contextlib.suppress(OSError):
        _prctl(_PR_SET_SECUREBITS, _NO_ROOT)
        _drop_from_bounding_set()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _set(0)


def keep_for_administration() -> None:
    """Keep the capabilities to administer files and users, and drop all others permanently, as root of a user namespace.

    Raises:
        OSError: If the kernel rejects a change.
    """
    _clear_ambient()
    _drop_from_bounding_set(without=_ADMINISTRATION)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _set(_ADMINISTRATION)


def keep_setting_ids(become: Callable[[], None], *, maps_root: bool = False) -> None:
    """Change the user of the calling process, which is root, and keep the capabilities to set user and group ids.

    Args:
        become: Changes the user.
        maps_root: Whether to keep the capability to map its present user in user namespaces, too (CAP_SETFCAP).

    Raises:
        OSError: If the calling process lacks the capabilities.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_KEEPCAPS, 1)
    become()
    _set(1 << _CAP_SETGID | 1 << _CAP_SETUID | (1 << _CAP_SETFCAP if maps_root else 0))


def _clear_ambient() -> None:
    # Fails on kernels without ambient capabilities.
    with contextlib.suppress(OSError):
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def _drop_from_bounding_set(*, without: int = 0) -> None:
    for capability in itertools.takewhile(_exists, itertools.count()):
        if not without >> capability & 1:
            _prctl(_PR_CAPBSET_DROP, capability)


def _set(kept: int) -> None:
    """Set the permitted and the effective capabilities, and no inheritable ones."""
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, struct.pack("6I", kept, kept, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _exists(capability: int) -> bool:
    return bool(_libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {argument})")
