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
from coding_gym_server.ipc.messages import Configure, Execute, Finished, ForkWorker, FromProcess, ToProcess, WorkerForked
from coding_gym_server.ipc.zygote_messages import ForkRoot
from coding_gym_server.isolation.probe import probe
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.workspace import directory as workspace
from coding_gym_server.zygote.config import ZygoteConfig

__all__ = ["BaselineError", "bare_worker"]

_READ_BYTES = 65_536

_decoder: msgspec.msgpack.Decoder[FromProcess] = msgspec.msgpack.Decoder(FromProcess)


class BaselineError(Exception):
    """A worker does not run without client and server on this machine."""


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ForkError) as error:
        message = f"the bare worker failed: {type(error).__name__}: {error}"
        raise BaselineError(message) from error


@contextlib.contextmanager
def bare_worker() -> Iterator[Callable[[str], None]]:
    """Fork a worker as the server does, and yield a function that runs code in it over a blocking socket pair.

    As in a sandbox, its output goes to a pipe, which is drained after each execution.

    Raises:
        BaselineError: If the worker cannot be forked, or exits. The function raises it, too.
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="coding-gym-bench-"))
        for name in (workspace.WORK, workspace.TEMPORARY):
            workspace.repair(f"{directory}/{name}", 0o700)
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

        with _explained():
            runner.run(fork_root())
            root_end.close()
            _send(control, ForkWorker(), (worker_end.fileno(), worker_output, worker_output))
            worker_end.close()
            os.close(worker_output)
            _expect(control, WorkerForked)
            _send(connection, Configure(seed="0", show_value=True))
        os.set_blocking(output, False)

        def execute(code: str) -> None:
            with _explained():
                _send(connection, Execute(code))
                _expect(connection, Finished)
            with contextlib.suppress(BlockingIOError):
                os.read(output, _READ_BYTES)

        yield execute


def _socket_pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    return stack.enter_context(ours), stack.enter_context(theirs)


def _send(connection: socket.socket, message: ToProcess, descriptors: tuple[int, ...] = ()) -> None:
    body = msgspec.msgpack.encode(message)
    socket.send_fds(connection, [HEADER.pack(len(body)) + body], descriptors)


def _expect(connection: socket.socket, kind: type[FromProcess]) -> None:
    # Responses are only a few bytes long: one ``recv`` returns a whole message.
    data = connection.recv(_READ_BYTES)
    if not data:
        message = f"it exited instead of sending {kind.__name__}"
        raise EOFError(message)
    response = _decoder.decode(data[HEADER.size :])
    if not isinstance(response, kind):
        message = f"it sent {response} instead of {kind.__name__}"
        raise EOFError(message)
