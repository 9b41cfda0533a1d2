"""Resource usage of a sandbox and its client."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import psutil

from benchmarks.processes import pss
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.ownership import OwnerProcess
from tests.support.sandbox_processes import processes_of, server_of, zygote_of

__all__ = ["TOLERANCES", "of_client", "of_sandbox"]

TOLERANCES = {
    "server, MB": 6.0,
    "zygote, MB": 6.0,
    "server, descriptors": 3,
    "zygote, descriptors": 2,
    "processes": 1,
    "files in workspaces": 3,
    "files in /tmp": 2,
    "files in /dev/shm": 0,
    "client, MB": 12.0,
    "client, descriptors": 4,
    "client, threads": 2,
    "runtime directories": 0,
}
"""Maximum growth of each value from start to end."""


def of_sandbox(sandbox: Sandbox) -> dict[str, float]:
    """Measure an idle sandbox on this machine."""
    server, zygote = server_of(sandbox), zygote_of(sandbox)
    root = Path(f"/proc/{server.pid}/root")
    is_local = not hasattr(sandbox, "container")
    workspaces = Path(str(sandbox.address)).parent.parent / "ws" if is_local else Path("/workspaces")
    return {
        "server, MB": pss([server.pid]),
        "zygote, MB": pss([zygote.pid]),
        "server, descriptors": server.num_fds(),
        "zygote, descriptors": zygote.num_fds(),
        "processes": len(processes_of(sandbox)),
        "files in workspaces": _files_below(root / workspaces.relative_to("/")),
        # /tmp of the machine does not belong to the local provider.
        "files in /tmp": 0 if is_local else _files_below(root / "tmp"),
        "files in /dev/shm": _files_below(root / "dev/shm"),
    }


def of_client(pools: int) -> dict[str, float]:
    """Measure this process, which owns ``pools`` sandboxes."""
    return {
        "client, MB": pss([os.getpid()]),
        "client, descriptors": psutil.Process().num_fds(),
        "client, threads": threading.active_count(),
        "runtime directories": len(list(_own_runtime_directories())) - pools,
    }


def _files_below(directory: Path) -> int:
    return sum(len(directories) + len(files) for _, directories, files in os.walk(directory))


def _own_runtime_directories() -> list[Path]:
    from coding_gym.sandbox.ownership import _runtime_base

    found = []
    for directory in _runtime_base().glob("*"):
        with contextlib.suppress(OSError, ValueError):
            if OwnerProcess.parse((directory / "owner").read_text()) == OwnerProcess.current():
                found.append(directory)
    return found
