"""Sandboxes that are process trees of this machine: how they are started, watched and ended."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from coding_gym.client.address import Address
from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox.base import Sandbox, check_exit_code, wait_until_ready
from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym.sandbox.ownership import new_runtime_directory, remove_orphaned_directories
from coding_gym_server.isolation.probe import probe
from coding_gym_server.protocol import ServerConfig

__all__ = ["LOG_FILE", "ProcessTree", "Program", "require_filter", "start_process_tree", "variables"]

LOG_FILE = "log"
"""Name of the file with the server's output, in the runtime directory."""

_EXIT_TIMEOUT = 3.0
_LOG_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that runs a server.

    Attributes:
        command: The program with its arguments, to which the server's are added.
        run: The directory ``run`` of the runtime directory, with the socket and the token, as the server sees it.
        workspaces: The directory ``ws``, as the server sees it.
        environment: The program's environment variables.
    """

    command: tuple[str, ...]
    run: Path
    workspaces: Path
    environment: Mapping[str, str]


class ProcessTree(Sandbox):
    """A sandboxed process tree.

    Args:
        address: Address of its server.
        description: One-line description.
        process: The program that runs the server.
        directory: Directory of its socket, its log and the workspaces.
    """

    def __init__(self, address: Address, description: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        super().__init__(address, description)
        self._process = process
        self._directory = directory

    def _remove(self) -> None:
        _end(self._process, self._directory)


def require_filter(provider: str) -> None:
    """Raise if the kernel has too little for the sandboxes of a provider.

    Raises:
        ProviderUnavailableError: If it cannot filter system calls.
    """
    kernel = probe()
    if kernel.missing_filter:
        raise ProviderUnavailableError(provider=provider, reason=f"it requires {kernel.missing_filter}. Install Docker")


def start_process_tree(
    config: SandboxConfig, server: ServerConfig, program_in: Callable[[Path], Program], *, description: str
) -> ProcessTree:
    """Start a server that confines itself, and wait until it is ready.

    Args:
        config: Its sandbox's configuration.
        server: Its own configuration, which gets the directories and limits.
        program_in: Returns the program for a runtime directory.
        description: What the sandbox is, in a few words.

    Raises:
        ConfigurationError: If the server cannot fulfill its configuration: the backend is not installed, for example.
        SandboxStartError: If the server does not start.
    """
    remove_orphaned_directories()
    with new_runtime_directory() as directory:
        token = secrets.token_urlsafe(32) if config.token is None else config.token
        # The server's user creates its socket here; the parent directory keeps out other users of this machine.
        for name in ("run", "ws"):
            (directory / name).mkdir()
        (directory / "run").chmod(0o777)
        (directory / "run" / "token").write_text(token)
        program = program_in(directory)
        server = replace(
            server,
            uds=str(program.run / "server.sock"),
            workspaces=program.workspaces,
            max_memory_bytes=parse_size(config.mem),
            max_file_bytes=parse_size(config.disk),
            max_processes=config.pids_limit,
        )
        command = [*program.command, "--token-file", str(program.run / "token"), "--config", server.document()]
        log = directory / LOG_FILE
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=dict(program.environment),
            )
        address = Address.of_unix_socket(str(directory / "run" / "server.sock"), token=token)

        def explain_death() -> str | None:
            if process.poll() is None:
                return None
            printed = _tail(log)
            check_exit_code(process.returncode, printed)
            return printed

        try:
            wait_until_ready(address, timeout=config.start_timeout, explain_death=explain_death)
        except BaseException:
            _end(process, directory)
            raise
    return ProcessTree(address, f"{description} (pid {process.pid})", process, directory)


def variables(*names: str) -> dict[str, str]:
    """Return those of these environment variables that are set: an allowlist keeps the caller's secrets from the sandbox."""
    return {name: os.environ[name] for name in names if name in os.environ}


def _end(process: subprocess.Popen[bytes], directory: Path) -> None:
    process.terminate()
    try:
        process.wait(_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        # The launcher, the server and its zygotes; the session roots detect that they are gone, and end everything in turn.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    workspaces = directory / "ws"
    if workspaces.exists():
        workspaces.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(lines) or "it printed nothing"
