"""Causes of system calls that failed in the set-up of sandboxes and sessions: what refused them, and what to do about it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import msgspec

__all__ = ["KernelFacts", "explain"]

_SINCE = {
    "clone3": (5, 3),
    "fsconfig": (5, 2),
    "fsmount": (5, 2),
    "fsopen": (5, 2),
    "landlock_create_ruleset": (5, 13),
    "mount_setattr": (5, 12),
    "move_mount": (5, 2),
    "open_tree": (5, 2),
}
"""The version of Linux that brought a system call."""

_MAPPED_TMPFS = (6, 3)
"""The version of Linux that brought ID-mapped mounts of tmpfs."""

_LIMITS = "user.max_user_namespaces", "user.max_mnt_namespaces", "user.max_pid_namespaces", "user.max_net_namespaces"
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
_CLONE = "kernel.unprivileged_userns_clone"


class KernelFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What decides whether the kernel permits namespaces and mounts to the calling process.

    Attributes:
        release: Release of the kernel, such as ``6.1.0-18-amd64``.
        root: Whether the process is root.
        filtered: Whether a seccomp filter checks its system calls.
        sysctls: Values of the settings of the kernel that it has, by name.
    """

    release: str
    root: bool
    filtered: bool
    sysctls: dict[str, int]

    @classmethod
    def read(cls) -> KernelFacts:
        """Return the facts of the calling process."""
        status = Path("/proc/self/status").read_text()
        return cls(
            release=os.uname().release,
            root=os.geteuid() == 0,
            filtered=re.search(r"^Seccomp:\s*2$", status, re.MULTILINE) is not None,
            sysctls={name: value for name in (*_LIMITS, _APPARMOR, _CLONE) if (value := _read_sysctl(name)) is not None},
        )

    @property
    def version(self) -> tuple[int, int]:
        """The version of the kernel."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def explain(operation: str, number: int, facts: KernelFacts | None = None) -> str:
    """Return what failed, how, and why and what to do about it, if that is known.

    Args:
        operation: The system call, possibly with its object: ``mount /tmp``.
        number: Its error number.
        facts: What the kernel has; None for those of the calling process.
    """
    try:
        found = _cause(operation, number, facts or KernelFacts.read())
    except OSError:
        # A process between two pid namespaces is in no /proc.
        found = ""
    return f"{operation}: {os.strerror(number)}{f' ({found})' if found else ''}"


def _cause(operation: str, number: int, facts: KernelFacts) -> str:
    call, _, target = operation.partition(" ")
    if number in (errno.EPERM, errno.EACCES):
        return _refusal(target, facts)
    if number == errno.ENOSYS:
        since = _SINCE.get(call)
        if since is not None and facts.version < since:
            return _needs(since, facts)
        return "the seccomp profile of the container denies it" if facts.filtered else ""
    if number == errno.ENOSPC and call in ("unshare", "clone"):
        exhausted = [name for name in _LIMITS if facts.sysctls.get(name) == 0]
        return f"sysctl {(exhausted or _LIMITS)[0]} is {'0' if exhausted else 'reached'}: raise it"
    if number == errno.EINVAL and call == "mount_setattr" and facts.version < _MAPPED_TMPFS:
        return _needs(_MAPPED_TMPFS, facts)
    if number == errno.EUSERS:
        return "namespaces are nested too deeply"
    if number == errno.EAGAIN:
        return "the process limit is reached"
    return ""


def _refusal(target: str, facts: KernelFacts) -> str:
    if not facts.root and facts.sysctls.get(_APPARMOR):
        return f"AppArmor restricts user namespaces, sysctl {_APPARMOR}=1: load a profile such as deploy/apparmor/coding-gym"
    if not facts.root and facts.sysctls.get(_CLONE) == 0:
        return f"sysctl {_CLONE} is 0: set it to 1"
    if target == "proc":
        return "parts of /proc are masked: start the container with systempaths=unconfined, or unmask=ALL of Podman"
    if facts.filtered:
        return "the seccomp profile of the container denies it: start it with coding_gym/sandbox/docker/seccomp.json"
    return ""


def _needs(version: tuple[int, int], facts: KernelFacts) -> str:
    return f"it needs Linux {version[0]}.{version[1]}, and this is {facts.release}"


def _read_sysctl(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text())
    except (OSError, ValueError):
        return None
