"""A copy of a worker that waits to be copied again, and the set-up of the workers that are made of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import Failed, ToProcess
from coding_gym_server.ipc.snapshot_messages import Thaw, WorkerCopied
from coding_gym_server.linux.cloning import clone_sibling
from coding_gym_server.worker.branching.census import Held
from coding_gym_server.worker.branching.reopening import renew_loops, reopen

__all__ = ["leave_copy", "restore_descriptors", "wait_to_thaw"]


def leave_copy(channel: Channel[ToProcess]) -> bool:
    """Fork a frozen copy of the calling worker; return whether this is the copy."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            pid = clone_sibling()
        except OSError as error:
            channel.send(Failed(f"cannot copy the interpreter: {error}"))
            return False
        if pid == 0:
            # Signals to the process group of the original do not reach it.
            os.setsid()
            return True
        theirs.close()
        # Until it is so.
        ours.recv(1)
    channel.send(WorkerCopied(pid))
    return False


def wait_to_thaw(descriptor: int, outputs: Mapping[int, int], *, set_up: Callable[[], None]) -> list[int]:
    """Wait in a frozen copy for requests, and fork a worker for each of them. Returns in these, and if it becomes one itself.

    Args:
        descriptor: Descriptor of the copy's channel.
        outputs: Descriptors of the original's output pipes, which the copy must not keep open.
        set_up: Called first, in the copy and in each worker: ties the process to the root.

    Returns:
        Descriptors of the worker's channel, stdout and stderr.
    """
    set_up()
    null = os.open(os.devnull, os.O_RDWR)
    for number in outputs:
        os.dup2(null, number, os.get_inheritable(number))
    os.close(null)
    channel: Channel[ToProcess] = Channel(socket.socket(fileno=descriptor))
    while True:
        try:
            request, descriptors = channel.receive_with_descriptors()
        except (EOFError, ConnectionError):
            os._exit(0)
        assert isinstance(request, Thaw)
        if not request.fork:
            channel.send(WorkerCopied(os.getpid()))
            channel.close()
            return descriptors
        try:
            pid = clone_sibling()
        except OSError as error:
            channel.send(Failed(f"cannot copy the interpreter: {error}"))
        else:
            if pid == 0:
                channel.close()
                set_up()
                return descriptors
            channel.send(WorkerCopied(pid))
        close_all(descriptors)


def restore_descriptors(held: Held, stdout: int, stderr: int, *, in_fork: bool) -> None:
    """Connect the descriptors of a thawed worker: its own output pipes, files at their positions, renewed event loops.

    Args:
        held: What the frozen worker held.
        stdout: New pipe for stdout, which is closed.
        stderr: New pipe for stderr, which is closed.
        in_fork: Whether the frozen worker belongs to another session.
    """
    for number, stream in held.outputs.items():
        os.dup2(stdout if stream == 1 else stderr, number, os.get_inheritable(number))
    close_all((stdout, stderr))
    reopen(held.files, in_fork=in_fork)
    renew_loops(held.loops)
