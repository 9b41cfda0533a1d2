"""Fault injection for sandboxes, and waiting for its effects."""

from __future__ import annotations

import time

import docker.errors
import psutil
from docker.models.containers import Container

from coding_gym.sandbox import Sandbox
from tests.support.running_server import gone_within, is_alive
from tests.support.sandbox_processes import server_of, workers_of
from tests.support.timing import eventually

__all__ = ["is_gone", "kill_sandbox", "kill_sessions", "living_children", "pause", "settled_descriptors"]


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


def pause(container: Container) -> None:
    """Pause a container; with control groups of version 1, the engine sometimes fails to freeze processes that are busy."""

    def try_to() -> bool:
        try:
            container.pause()
        except docker.errors.APIError as error:
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    assert eventually(try_to)


def is_gone(process: psutil.Process | int) -> bool:
    """Return whether a process has exited or is a zombie."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
    except psutil.NoSuchProcess:
        return True
    return not is_alive(process)


def living_children() -> set[psutil.Process]:
    """Return the child processes of this process that are still alive."""
    return {child for child in psutil.Process().children() if not is_gone(child)}


def settled_descriptors(process: psutil.Process) -> int:
    """Return the number of descriptors of a server, once no spare process is being started, each of which takes a few."""
    seen = [process.num_fds()]
    while len(seen) < 50 or len(set(seen[-50:])) > 1:
        time.sleep(0.02)
        seen.append(process.num_fds())
    return seen[-1]
