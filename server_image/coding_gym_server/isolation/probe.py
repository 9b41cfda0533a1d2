"""Detection of the kernel's isolation features, and the report of those in use."""

from __future__ import annotations

import os
import platform

import msgspec

from coding_gym_server.isolation import landlock, seccomp

__all__ = ["SIGNAL_SCOPE_ABI", "IsolationReport", "KernelFeatures", "probe", "report"]

SIGNAL_SCOPE_ABI = 6
"""First Landlock ABI version (Linux 6.12) that prevents a session from signaling processes outside it."""


class KernelFeatures(msgspec.Struct, kw_only=True, frozen=True):
    """Isolation features that the kernel offers to an unprivileged process.

    Attributes:
        release: The kernel's release.
        machine: The processor's architecture.
        landlock_abi: Landlock ABI version, 0 if it is missing or disabled.
        seccomp: Whether the kernel accepts the filter of ``isolation.seccomp``.
    """

    release: str
    machine: str
    landlock_abi: int
    seccomp: bool

    @property
    def missing_filter(self) -> str:
        """What is missing to filter system calls, empty if nothing."""
        return "" if self.seccomp else f"seccomp filters on x86_64 or aarch64, but this is {self.machine} without them"

    @property
    def missing_scope(self) -> str:
        """What is missing to keep sessions without namespaces from signaling each other, empty if nothing."""
        if self.landlock_abi >= SIGNAL_SCOPE_ABI:
            return ""
        found = f"this kernel has ABI {self.landlock_abi}" if self.landlock_abi else "this kernel has no Landlock"
        return f"namespaces, or Landlock ABI {SIGNAL_SCOPE_ABI} or later (Linux 6.12), but {found}"


class IsolationReport(msgspec.Struct, kw_only=True, frozen=True):
    """Isolation features in use by a server, as ``/health`` reports them.

    Attributes:
        policy: ``require`` or ``prefer``.
        landlock_abi: Landlock ABI version, 0 without Landlock.
        signal_scope: Whether a session's signals reach only its own processes.
        seccomp: Whether the filter of ``isolation.seccomp`` is installed.
        session_users: Whether each session has its own user.
        session_mounts: Whether each session has namespaces and a file system of its own.
        shared_user_reason: The reason why sessions have no users, empty if they have.
        shared_files_reason: The reason why there is only one session at a time, without namespaces, empty if they have some.
        session_groups: Whether each session has a control group with a share of the memory and the processors.
        shared_group_reason: The reason why sessions have no control groups, empty if they have.
        own_namespaces: Whether the server created namespaces for itself; a container has those of its engine.
        no_new_privileges: Whether the ``no_new_privs`` attribute of the server is set.
        capabilities: Whether the server has any capability.
        kernel: The kernel's release.
        machine: The processor's architecture.
    """

    policy: str
    landlock_abi: int
    signal_scope: bool
    seccomp: bool
    session_users: bool
    session_mounts: bool
    shared_user_reason: str
    shared_files_reason: str
    session_groups: bool
    shared_group_reason: str
    own_namespaces: bool
    no_new_privileges: bool
    capabilities: bool
    kernel: str
    machine: str


def probe() -> KernelFeatures:
    """Return the isolation features of the running kernel."""
    return KernelFeatures(
        release=os.uname().release,
        machine=platform.machine(),
        landlock_abi=landlock.abi_version(),
        seccomp=seccomp.is_available(),
    )


def report(
    kernel: KernelFeatures,
    *,
    policy: str,
    own_namespaces: bool,
    session_users: bool,
    session_mounts: bool,
    shared_user_reason: str,
    shared_files_reason: str,
    shared_group_reason: str,
) -> IsolationReport:
    """Describe the isolation of the calling process, a server, and of its sessions."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
    return IsolationReport(
        policy=policy,
        landlock_abi=kernel.landlock_abi,
        signal_scope=session_mounts or kernel.landlock_abi >= SIGNAL_SCOPE_ABI,
        seccomp=kernel.seccomp,
        session_users=session_users,
        session_mounts=session_mounts,
        shared_user_reason=shared_user_reason,
        shared_files_reason=shared_files_reason,
        session_groups=not shared_group_reason,
        shared_group_reason=shared_group_reason,
        own_namespaces=own_namespaces,
        no_new_privileges=fields.get("NoNewPrivs", "0").strip() == "1",
        capabilities=int(fields.get("CapEff", "0"), 16) != 0,
        kernel=kernel.release,
        machine=kernel.machine,
    )
