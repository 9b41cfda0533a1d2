"""The process of a Jupyter kernel, and where it listens."""

from __future__ import annotations

import fcntl
import os
import signal
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.kernelspec import KernelSpec

from coding_gym_server.backends.kernelspecs import speaks_tcp_only
from coding_gym_server.isolation.confinement import Confinement

__all__ = ["KernelStartError", "choose_connection", "exit_code_of", "open_private_directory", "start_process"]

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_DIRECTORY_DESCRIPTOR = 60


class KernelStartError(RuntimeError):
    """The kernel could not be started."""


def open_private_directory() -> int:
    """Make a directory for a kernel's files, and open it.

    Other sessions can read command lines and the names of Unix sockets: by its descriptor, the directory's path is in neither.
    """
    opened = os.open(tempfile.mkdtemp(prefix="kernel-"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _DIRECTORY_DESCRIPTOR)
    finally:
        os.close(opened)


def choose_connection(spec: KernelSpec, confinement: Confinement, directory: str) -> ConnectionFileMixin:
    """Choose where a kernel listens, and write it to a file for it.

    Raises:
        KernelStartError: It wants ports, and the session has none.
    """
    connection = ConnectionFileMixin(connection_file=os.path.join(directory, "connection.json"))
    if speaks_tcp_only(spec):
        if len(confinement.ports) < len(_CHANNELS):
            message = (
                f"The {spec.display_name} kernel speaks TCP only, and nothing here keeps other sessions from it: "
                "that wants Linux 6.7 or later with Landlock"
            )
            raise KernelStartError(message)
        connection.transport, connection.ip = "tcp", "127.0.0.1"
        for channel, port in zip(_CHANNELS, confinement.ports, strict=False):
            setattr(connection, f"{channel}_port", port)
    else:
        connection.transport, connection.ip = "ipc", os.path.join(directory, "socket")
    connection.session.key = os.urandom(32).hex().encode()
    connection.write_connection_file()
    return connection


def start_process(spec: KernelSpec, connection_file: str, confinement: Confinement, directory: int) -> subprocess.Popen[bytes]:
    """Start a kernel.

    Args:
        spec: Which one.
        connection_file: Where it is to listen.
        confinement: What the session is confined to.
        directory: A descriptor that it is given.

    Raises:
        KernelStartError: Its program cannot be run.
    """
    places = {"connection_file": connection_file, "resource_dir": spec.resource_dir, "prefix": sys.prefix}
    command = []
    for argument in spec.argv:
        for name, value in places.items():
            argument = argument.replace(f"{{{name}}}", value)
        command.append(argument)
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
    if spec.language == "python":
        # Without sockets ipykernel does without one that only children of its process would use; every cell would tell.
        environment["PYTHONWARNINGS"] = "ignore:Couldn't bind IOPub Pipe"
    environment |= {name: string.Template(value).safe_substitute(os.environ) for name, value in spec.env.items()}

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        confinement.apply_to_kernel()

    try:
        # In a session of its own, SIGINT reaches it when it is sent on, and not together with this process.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            pass_fds=(directory,),
            preexec_fn=prepare,
        )
    except OSError as error:
        message = f"The {spec.display_name} kernel cannot be started: {Path(command[0]).name}: {error.strerror}"
        raise KernelStartError(message) from error


def exit_code_of(status: int) -> int:
    """Return the exit code as a shell reports it: 128 and the signal's number, if a signal ended the process."""
    return status if status >= 0 else 128 - status
