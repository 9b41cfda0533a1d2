"""What the kernel offers to keep sessions apart, and what a server makes of it."""

from __future__ import annotations

import os
import platform

import msgspec

from coding_gym_server.isolation import landlock, seccomp

__all__ = ["SIGNAL_SCOPE_ABI", "IsolationReport", "Kernel", "probe", "report"]

SIGNAL_SCOPE_ABI = 6
"""The Landlock ABI version (Linux 6.12) that keeps a session from signalling anything outside of it."""


class Kernel(msgspec.Struct, kw_only=True, frozen=True):
    """What the kernel offers to an unprivileged process.

    Attributes:
        release: Its version.
        machine: The processor's architecture.
        landlock_abi: The version of Landlock's ABI, 0 where it is missing or disabled.
        seccomp: Whether it takes the filter of ``isolation.seccomp``.
    """

    release: str
    machine: str
    landlock_abi: int
    seccomp: bool

    @property
    def missing(self) -> list[str]:
        """What sessions would lack, in words; empty where everything is there."""
        found = f"this kernel offers ABI {self.landlock_abi}" if self.landlock_abi else "this kernel offers none"
        lacks = []
        if self.landlock_abi < SIGNAL_SCOPE_ABI:
            lacks.append(f"Landlock ABI {SIGNAL_SCOPE_ABI} or later (Linux 6.12), and {found}")
        if not self.seccomp:
            lacks.append(f"seccomp filters on x86_64 or aarch64, and this is {self.machine} without them")
        return lacks


class IsolationReport(msgspec.Struct, kw_only=True, frozen=True):
    """What keeps the sessions of a server apart, as ``/health`` shows it.

    Attributes:
        policy: ``require`` or ``prefer``.
        landlock_abi: The version of Landlock's ABI, 0 without.
        signal_scope: Whether a session's signals reach its own processes only.
        seccomp: Whether the filter of ``isolation.seccomp`` is on.
        own_namespaces: Whether the server has made namespaces for itself; a container has those of its engine.
        no_new_privileges: Whether the server can gain no privileges.
        capabilities: Whether the server has any capability.
        kernel: The kernel's release.
        machine: The processor's architecture.
    """

    policy: str
    landlock_abi: int
    signal_scope: bool
    seccomp: bool
    own_namespaces: bool
    no_new_privileges: bool
    capabilities: bool
    kernel: str
    machine: str


def probe() -> Kernel:
    """Ask the kernel."""
    return Kernel(
        release=os.uname().release,
        machine=platform.machine(),
        landlock_abi=landlock.abi_version(),
        seccomp=seccomp.is_available(),
    )


def report(kernel: Kernel, *, policy: str, own_namespaces: bool) -> IsolationReport:
    """Describe the isolation of the calling process, a server, and of its sessions."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
    return IsolationReport(
        policy=policy,
        landlock_abi=kernel.landlock_abi,
        signal_scope=kernel.landlock_abi >= SIGNAL_SCOPE_ABI,
        seccomp=kernel.seccomp,
        own_namespaces=own_namespaces,
        no_new_privileges=fields.get("NoNewPrivs", "0").strip() == "1",
        capabilities=int(fields.get("CapEff", "0"), 16) != 0,
        kernel=kernel.release,
        machine=kernel.machine,
    )
