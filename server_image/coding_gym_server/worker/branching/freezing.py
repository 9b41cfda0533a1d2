"""A copy of a worker that waits to be copied again, and the set-up of the workers that are made of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import Failed, ToProcess
from coding_gym_server.ipc.snapshot_messages import Thaw, WorkerCopied
from coding_gym_server.worker.branching.census import Held
from coding_gym_server.worker.branching.cloning import clone_sibling
from coding_gym_server.worker.branching.reopening import renew_loops, reopen

__all__ = ["leave_copy", "restore_descriptors", "wait_to_thaw"]


def leave_copy(channel: Channel[ToProcess]) -> int | None:
    """Fork a copy of the calling worker, which has been asked to; report it to the server.

    Returns:
        None in the worker. In the copy, the descriptor of its channel.
    """
    _, descriptors = channel.receive_with_descriptors()
    try:
        pid = clone_sibling()
    except OSError as error:
        channel.send(Failed(f"cannot copy the interpreter: {error}"))
    else:
        if pid == 0:
            return descriptors[0]
        channel.send(WorkerCopied(pid))
    close_all(descriptors)
    return None


def wait_to_thaw(descriptor: int, outputs: Mapping[int, int], *, set_up: Callable[[], None]) -> tuple[Thaw, list[int]]:
    """Wait in a frozen copy for requests, and fork a worker for each of them. Returns in these workers only.

    Args:
        descriptor: Descriptor of the copy's channel.
        outputs: Descriptors of the original's output pipes, which the copy must not keep open.
        set_up: Called first, in the copy and in each worker: ties the process to the root.

    Returns:
        The request and the descriptors that it passes.
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
        try:
            pid = clone_sibling()
        except OSError as error:
            channel.send(Failed(f"cannot copy the interpreter: {error}"))
        else:
            if pid == 0:
                channel.close()
                set_up()
                return request, descriptors
            channel.send(WorkerCopied(pid))
        close_all(descriptors)


def restore_descriptors(held: Held, outputs: Mapping[int, int], stdout: int, stderr: int) -> None:
    """Connect the descriptors of a thawed worker: output pipes of its own, files at their positions, renewed event loops.

    Args:
        held: What the frozen worker held.
        outputs: Number of the standard stream of each descriptor of an output pipe.
        stdout: New pipe for stdout, which is closed.
        stderr: New pipe for stderr, which is closed.
    """
    for number, stream in outputs.items():
        os.dup2(stdout if stream == 1 else stderr, number, os.get_inheritable(number))
    close_all((stdout, stderr))
    reopen(held.files)
    renew_loops(held.loops)
