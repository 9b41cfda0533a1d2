"""Processes of a sandbox, from the perspective of the host."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from coding_gym.sandbox import Sandbox

__all__ = ["ITSELF", "PARENT", "command_line", "host_process", "processes_of", "server_of", "workers_of", "zygote_of"]

ITSELF = "(__import__('os').getpid(), __import__('os').readlink('/proc/self/ns/pid'))"
PARENT = ITSELF.replace("getpid", "getppid")
"""Expressions for a pid, and for the namespace in which the process that evaluates them has it, or its parent."""

_SERVERS = ("bin/coding-gym-server", "-m coding_gym_server --container")
"""Of the default image, and of others."""

_ZYGOTE = "coding_gym_server.zygote.bootstrap"
_OF_SUBMISSIONS = '"backend":"submission"'


def processes_of(sandbox: Sandbox) -> list[psutil.Process]:
    """Return all processes of a sandbox."""
    if not hasattr(sandbox, "container"):
        first = _first_process(sandbox)
        return [first, *first.children(recursive=True)]
    top = sandbox.container.top()
    column = top["Titles"].index("PID")
    found = []
    for row in top["Processes"] or ():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(row[column])))
    return found


def server_of(sandbox: Sandbox) -> psutil.Process:
    """Return the server process of a sandbox."""
    if not hasattr(sandbox, "container"):
        first = _first_process(sandbox)
        # A launcher has the same command line as the server, its child.
        return next((child for child in first.children() if command_line(child) == command_line(first)), first)
    named = [process for process in processes_of(sandbox) if any(name in command_line(process) for name in _SERVERS)]
    # The init of the container and the launcher name it, too; process ids begin anew, so that their order says nothing.
    parents = [process.parent() for process in named]
    return next(process for process in named if process not in parents)


def zygote_of(sandbox: Sandbox) -> psutil.Process:
    """Return the zygote of a sandbox."""
    server = server_of(sandbox)
    parent = server.parent()
    if parent is not None and command_line(parent) == command_line(server):
        # The launcher, which also adopts the roots of a zygote that has died.
        zygotes = [child for child in parent.children() if _is_zygote(child)]
        return next(iter(sorted(zygotes, key=_start_time, reverse=True)))
    return next(child for child in server.children() if _is_zygote(child))


def workers_of(sandbox: Sandbox) -> list[psutil.Process]:
    """Return the workers of a sandbox, including those of spare roots."""
    zygote = zygote_of(sandbox)
    forks = [process for process in processes_of(sandbox) if _ZYGOTE in command_line(process) and process != zygote]
    # A worker is a child of a root, which is also forked from the zygote.
    return [fork for fork in forks if fork.parent() in forks]


def host_process(sandbox: Sandbox, found: tuple[int, str]) -> psutil.Process:
    """Return a process of a session.

    Args:
        sandbox: The sandbox.
        found: What ``ITSELF`` or ``PARENT`` is in the session.
    """
    return next(process for process in processes_of(sandbox) if (_own_pid(process), _namespace(process)) == tuple(found))


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process, empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _start_time(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        return process.create_time()
    return 0.0


def _is_zygote(process: psutil.Process) -> bool:
    """Return whether a process is a zygote other than that of submissions."""
    command = command_line(process)
    return _ZYGOTE in command and _OF_SUBMISSIONS not in command


def _first_process(sandbox: Sandbox) -> psutil.Process:
    """Return the first process of a local sandbox."""
    return psutil.Process(int(sandbox.description.rpartition("pid ")[2].rstrip(")")))


def _namespace(process: psutil.Process) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{process.pid}/ns/pid")
    return None


def _own_pid(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None
