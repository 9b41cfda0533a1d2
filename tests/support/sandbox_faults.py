"""Fault injection for sandboxes, and waiting for its effects."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from coding_gym.sandbox import Sandbox
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import server_of, workers_of

__all__ = ["eventually", "is_gone", "kill_sandbox", "kill_sessions", "living_children", "settled_descriptors"]


def eventually(condition: Callable[[], object], within: float = 30.0) -> bool:
    """Return whether a condition becomes true within a number of seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill_sandbox(sandbox: Sandbox) -> None:
    """Kill a sandbox without notice to its owner, and wait until it is dead."""
    server = server_of(sandbox)
    server.kill()
    assert gone_within([server]) == []


def kill_sessions(sandbox: Sandbox) -> None:
    """Kill the root processes of the sessions of a sandbox, and wait until they are dead."""
    roots = [root for worker in workers_of(sandbox) if (root := worker.parent()) is not None]
    assert roots
    for root in roots:
        root.kill()
    assert gone_within(roots) == []


def is_gone(process: psutil.Process | int) -> bool:
    """Return whether a process has exited or is a zombie."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
    except psutil.NoSuchProcess:
        return True
    return gone_within([process], 0) == []


def living_children() -> set[psutil.Process]:
    """Return the child processes of this process that are still alive."""
    return {child for child in psutil.Process().children() if not is_gone(child)}


def settled_descriptors(process: psutil.Process, unchanged_for: float = 1.0) -> int:
    """Return the number of descriptors of a server, once no spare process is being started, each of which takes a few."""
    number, since = process.num_fds(), time.monotonic()
    while time.monotonic() < since + unchanged_for:
        time.sleep(0.02)
        if process.num_fds() != number:
            number, since = process.num_fds(), time.monotonic()
    return number
