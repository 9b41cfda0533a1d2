"""Entrance to Landlock domains; ``isolation/landlock.py`` creates their rulesets."""

from __future__ import annotations

import ctypes
import os

__all__ = ["enter"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_NR_RESTRICT_SELF = 446
_PR_SET_NO_NEW_PRIVS = 38


def enter(ruleset: int) -> None:
    """Restrict the calling thread and its future children to a ruleset, which other processes may enter, too.

    Each entrance creates its own domain, below the current one.

    Args:
        ruleset: Descriptor of the ruleset.

    Raises:
        OSError: If the process already has 16 layers (E2BIG).
    """
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if _libc.syscall(_NR_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock_restrict_self: {os.strerror(number)}")
