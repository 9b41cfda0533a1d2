"""Process of a Jupyter kernel, and its connection endpoints."""

from __future__ import annotations

import os
import signal
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.kernelspec import KernelSpec

from coding_gym_server.worker.backends.jupyter.kernelspecs import speaks_tcp_only

__all__ = ["KernelStartError", "choose_connection", "exit_code_of", "start_process"]


class KernelStartError(RuntimeError):
    """The kernel could not be started."""


def choose_connection(spec: KernelSpec) -> ConnectionFileMixin:
    """Choose the endpoints on which a kernel listens, and write its connection file.

    They are Unix sockets, which no other session can reach even if the sessions share a network; or TCP ports.

    Raises:
        KernelStartError: If the kernel requires ports, and the session may have none.
    """
    directory = tempfile.mkdtemp(prefix="kernel-")
    connection = ConnectionFileMixin(connection_file=os.path.join(directory, "connection.json"))
    if speaks_tcp_only(spec):
        connection.transport, connection.ip = "tcp", "127.0.0.1"
    else:
        connection.transport, connection.ip = "ipc", os.path.join(directory, "socket")
    connection.session.key = os.urandom(32).hex().encode()
    try:
        connection.write_connection_file()
    except PermissionError as error:
        message = (
            f"The {spec.display_name} kernel speaks TCP only, which sessions may not in a container that has a network and "
            "permits them no namespaces: start it as docs/sandboxes.md describes, or without a network"
        )
        raise KernelStartError(message) from error
    return connection


def start_process(spec: KernelSpec, connection_file: str) -> subprocess.Popen[bytes]:
    """Start a kernel process.

    Args:
        spec: The specification of the kernel.
        connection_file: Path of the connection file, which the process reads.

    Raises:
        KernelStartError: If the program of the kernel cannot be executed.
    """
    placeholders = {"connection_file": connection_file, "resource_dir": spec.resource_dir, "prefix": sys.prefix}
    command = []
    for argument in spec.argv:
        for name, value in placeholders.items():
            argument = argument.replace(f"{{{name}}}", value)
        command.append(argument)
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
    if spec.language == "python":
        # If ipykernel cannot bind a socket that only its child processes use, it works without it, but warns in every cell.
        environment["PYTHONWARNINGS"] = "ignore:Couldn't bind IOPub Pipe"
    environment |= {name: string.Template(value).safe_substitute(os.environ) for name, value in spec.env.items()}

    try:
        # In a new process session, the kernel receives SIGINT only when it is forwarded, not together with this process.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    except OSError as error:
        message = f"The {spec.display_name} kernel cannot be started: {Path(command[0]).name}: {error.strerror}"
        raise KernelStartError(message) from error


def exit_code_of(status: int) -> int:
    """Return the exit code as a shell reports it: 128 plus the signal number if a signal ended the process."""
    return status if status >= 0 else 128 - status
