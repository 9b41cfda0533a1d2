"""What a step is compared with: a worker without client and server, and a Jupyter kernel."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.isolation.probe import probe
from coding_gym_server.workers.channel import HEADER
from coding_gym_server.workers.messages import (
    Configure,
    Execute,
    Finished,
    ForkRoot,
    ForkWorker,
    FromProcess,
    ToProcess,
    WorkerForked,
)
from coding_gym_server.workers.zygote import ZygoteConfig
from coding_gym_server.workers.zygote_process import ZygoteProcess

__all__ = ["bare_worker", "ipykernel"]

_ANSWER_SECONDS = 10
_READ_BYTES = 65_536

_decoder: msgspec.msgpack.Decoder[FromProcess] = msgspec.msgpack.Decoder(FromProcess)


@contextlib.contextmanager
def bare_worker() -> Iterator[Callable[[str], None]]:
    """Fork a worker as the server does, and give a function that runs code in it over a blocking socket pair.

    Its output goes to a pipe, as it does in a sandbox, and is read while nobody counts: when the pipe might be full.
    """
    with contextlib.ExitStack() as stack:
        workspace = stack.enter_context(tempfile.TemporaryDirectory(prefix="coding-gym-bench-"))
        kernel = probe()
        confinement = Confinement(landlock=kernel.landlock_abi > 0, seccomp=kernel.seccomp)
        zygote = ZygoteProcess(ZygoteConfig(preload=[], backend="python", confinement=confinement))
        runner = stack.enter_context(asyncio.Runner())

        async def close_zygote() -> None:
            zygote.close()

        stack.callback(lambda: runner.run(close_zygote()))
        output, worker_output = os.pipe()
        stack.callback(os.close, output)
        connection, worker_end = _socket_pair(stack)
        # Closed before the worker's: the root shall end the worker, not be told of its end when nobody listens any more.
        control, root_end = _socket_pair(stack)

        async def fork_root() -> None:
            zygote.attach(on_gone=lambda: None)
            await zygote.fork_root(ForkRoot(workspace, "python"), root_end)

        runner.run(fork_root())
        root_end.close()
        _send(control, ForkWorker(workspace), (worker_end.fileno(), worker_output, worker_output))
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


@contextlib.contextmanager
def ipykernel() -> Iterator[Callable[[str], str] | None]:
    """Start a Jupyter kernel, and give a function that runs code in it and returns what it printed; None if not installed."""
    if not (importlib.util.find_spec("jupyter_client") and importlib.util.find_spec("ipykernel")):
        yield None
        return
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="coding-gym-bench-") as directory:
        manager = KernelManager(connection_file=str(Path(directory) / "kernel.json"))
        client = None
        try:
            manager.start_kernel(
                env={**os.environ, "IPYTHONDIR": directory}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            client = manager.blocking_client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            yield lambda code: _execute_in_kernel(client, code)
        finally:
            if client is not None:
                client.stop_channels()
            manager.shutdown_kernel(now=True)


def _execute_in_kernel(client: Any, code: str) -> str:
    request = client.execute(code)
    printed = ""
    while True:
        message = client.get_iopub_msg(timeout=_ANSWER_SECONDS)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            printed += message["content"]["text"]
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return printed


def _socket_pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    return stack.enter_context(ours), stack.enter_context(theirs)


def _send(connection: socket.socket, message: ToProcess, descriptors: tuple[int, ...] = ()) -> None:
    body = msgspec.msgpack.encode(message)
    socket.send_fds(connection, [HEADER.pack(len(body)) + body], descriptors)


def _receive(connection: socket.socket) -> FromProcess:
    # The answers are a few bytes long: they come in one piece.
    return _decoder.decode(connection.recv(_READ_BYTES)[HEADER.size :])
