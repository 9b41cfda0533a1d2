"""What happens to sandboxes, done by hand, and patience until it shows."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
from running_server import gone_within
from sandbox_processes import server_of

from coding_gym.providers import Sandbox

__all__ = ["eventually", "is_gone", "kill_sandbox", "living_children"]


def eventually(condition: Callable[[], object], within: float = 30.0) -> bool:
    """Say whether a condition comes true in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill_sandbox(sandbox: Sandbox) -> None:
    """Kill a sandbox behind its owner's back, and wait until it is dead."""
    server = server_of(sandbox)
    server.kill()
    assert gone_within([server], 10) == []


def is_gone(process: psutil.Process | int) -> bool:
    """Say whether a process is gone, or is a zombie."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
    except psutil.NoSuchProcess:
        return True
    return gone_within([process], 0) == []


def living_children() -> set[psutil.Process]:
    """Return the child processes of this one."""
    return {child for child in psutil.Process().children() if not is_gone(child)}
