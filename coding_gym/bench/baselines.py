"""What a step is compared with: a worker without client and server, a Jupyter kernel, and screenshots by a program for that."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from coding_gym_server.display.authority import write_authority
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

__all__ = ["bare_worker", "import_after_half_a_second", "ipykernel"]

_ANSWER_SECONDS = 10
_READ_BYTES = 65_536

_INTERPRETER = "import sys, tkinter\nfor line in sys.stdin:\n    exec(eval(line), {})\n    print(flush=True)"
_TAKE_PICTURE = """
import subprocess, time
time.sleep(0.5)
subprocess.run(["import", "-window", "root", "png:-"], check=True, stdout=subprocess.DEVNULL)
"""

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


@contextlib.contextmanager
def import_after_half_a_second(size: tuple[int, int]) -> Iterator[Callable[[str, str], None] | None]:
    """Start Xvfb and a warm interpreter, and give a function that takes a picture of a program's windows; None if it cannot be.

    The function runs what draws, waits for half a second, has ImageMagick's ``import`` take the picture, and runs what ends the
    program: what environments do that know nothing of when a picture is complete.
    """
    has_tkinter = importlib.util.find_spec("_tkinter") is not None
    if not (has_tkinter and shutil.which("Xvfb") and shutil.which("import")):
        yield None
        return
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coding-gym-bench-")))
        authority = directory / "authority"
        write_authority(authority, secrets.token_bytes(16))
        number, number_write = os.pipe()
        screen = ["-screen", "0", "{}x{}x24".format(*size), "-nolisten", "tcp", "-displayfd", str(number_write)]
        server = subprocess.Popen(
            ["Xvfb", *screen, "-auth", str(authority)],
            pass_fds=[number_write],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(_end, server)
        os.close(number_write)
        with open(number) as file:
            display = f":{file.readline().strip()}"
        environment = {**os.environ, "DISPLAY": display, "XAUTHORITY": str(authority)}
        interpreter = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        stack.callback(_end, interpreter)

        def take_picture(drawing: str, ending: str) -> None:
            assert interpreter.stdin is not None
            assert interpreter.stdout is not None
            print(repr(f"{drawing}\n{_TAKE_PICTURE}\n{ending}"), file=interpreter.stdin, flush=True)
            assert interpreter.stdout.readline(), "the interpreter has died"

        yield take_picture


def _end(process: subprocess.Popen[Any]) -> None:
    with process:
        # Politely: an X server takes its socket with it.
        process.terminate()


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
