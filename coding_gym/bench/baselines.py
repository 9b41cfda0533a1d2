"""Baseline for steps: a worker without client and server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator

import msgspec

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.ipc.messages import (
    Configure,
    Execute,
    Finished,
    ForkRoot,
    ForkWorker,
    FromProcess,
    ToProcess,
    WorkerForked,
)
from coding_gym_server.isolation.probe import probe
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.workspace import directory as workspace
from coding_gym_server.zygote.main import ZygoteConfig

__all__ = ["bare_worker"]

_READ_BYTES = 65_536

_decoder: msgspec.msgpack.Decoder[FromProcess] = msgspec.msgpack.Decoder(FromProcess)


@contextlib.contextmanager
def bare_worker() -> Iterator[Callable[[str], None]]:
    """Fork a worker as the server does, and yield a function that runs code in it over a blocking socket pair.

    As in a sandbox, its output goes to a pipe, which is drained after each execution.
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="coding-gym-bench-"))
        workspace.repair(directory)
        kernel = probe()
        profile = IsolationProfile(landlock=kernel.landlock_abi > 0, seccomp=kernel.seccomp)
        zygote = ZygoteHandle(ZygoteConfig(preload=[], backend="python", profile=profile))
        runner = stack.enter_context(asyncio.Runner())

        async def close_zygote() -> None:
            zygote.close()

        stack.callback(lambda: runner.run(close_zygote()))
        output, worker_output = os.pipe()
        stack.callback(os.close, output)
        connection, worker_end = _socket_pair(stack)
        # Closed before the worker's connection, so that the root terminates the worker rather than reporting its exit to a
        # closed connection.
        control, root_end = _socket_pair(stack)

        async def fork_root() -> None:
            zygote.attach(on_gone=lambda: None)
            await zygote.fork_root(ForkRoot(directory, "python"), root_end)

        runner.run(fork_root())
        root_end.close()
        _send(control, ForkWorker(directory), (worker_end.fileno(), worker_output, worker_output))
        worker_end.close()
        os.close(worker_output)
        assert isinstance(_receive(control), WorkerForked)
        _send(connection, Configure(seed="0", show_value=True))
        os.set_blocking(output, False)

        def execute(code: str) -> None:
            _send(connection, Execute(code))
            assert isinstance(_receive(connection), Finished)
            with contextlib.suppress(BlockingIOError):
                os.read(output, _READ_BYTES)

        yield execute


def _socket_pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    return stack.enter_context(ours), stack.enter_context(theirs)


def _send(connection: socket.socket, message: ToProcess, descriptors: tuple[int, ...] = ()) -> None:
    body = msgspec.msgpack.encode(message)
    socket.send_fds(connection, [HEADER.pack(len(body)) + body], descriptors)


def _receive(connection: socket.socket) -> FromProcess:
    # Responses are only a few bytes long: one ``recv`` returns a whole message.
    return _decoder.decode(connection.recv(_READ_BYTES)[HEADER.size :])
