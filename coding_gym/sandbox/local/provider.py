"""The local provider: the server as a child process in namespaces, under resource limits."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from coding_gym.client.address import Address
from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox.base import Sandbox, check_exit_code, wait_until_ready
from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym.sandbox.ownership import new_runtime_directory, remove_orphaned_directories
from coding_gym.sandbox.server_config import server_config
from coding_gym_server.isolation.probe import probe

__all__ = ["LOG_FILE", "LocalSandbox", "start_local"]

LOG_FILE = "log"
"""Name of the file with the server's output, in the runtime directory."""

_EXIT_TIMEOUT = 3.0
_LOG_LINES = 20


class LocalSandbox(Sandbox):
    """A locally sandboxed process tree.

    Args:
        address: Address of its server.
        description: One-line description.
        process: The server process.
        directory: Directory of its socket, its log and the workspaces.
    """

    def __init__(self, address: Address, description: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        super().__init__(address, description)
        self._process = process
        self._directory = directory

    def _remove(self) -> None:
        _end(self._process, self._directory)


def start_local(config: SandboxConfig) -> LocalSandbox:
    """Start a server and wait until it is ready.

    Raises:
        ProviderUnavailableError: If the kernel cannot filter system calls.
        PackageInstallError: If the packages cannot be installed.
        ConfigurationError: If the server cannot fulfill its configuration: the backend is not installed, for example.
        SandboxStartError: If the server does not start.
    """
    kernel = probe()
    if kernel.missing_filter:
        raise ProviderUnavailableError(provider="local", reason=f"it requires {kernel.missing_filter}. Install Docker")
    overlay = _prepare_packages(config) if config.packages or config.system_packages else None
    remove_orphaned_directories()
    with new_runtime_directory() as directory:
        token = secrets.token_urlsafe(32) if config.token is None else config.token
        (directory / "run").mkdir()
        # The server's user creates its socket here; the parent directory keeps out other users of this machine.
        (directory / "run").chmod(0o777)
        (directory / "run" / "token").write_text(token)
        socket_path = directory / "run" / "server.sock"
        server = replace(
            server_config(config),
            uds=str(socket_path),
            workspaces=directory / "ws",
            confine_server=True,
            max_memory_bytes=parse_size(config.mem),
            max_file_bytes=parse_size(config.disk),
            max_processes=config.pids_limit,
            overlay=overlay,
        )
        token_file = str(directory / "run" / "token")
        command = [
            *(sys.executable, "-P", "-m", "coding_gym_server"),
            *("--token-file", token_file, "--config", server.document()),
        ]
        log = directory / LOG_FILE
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**_environment(), **config.environment},
            )
        address = Address.of_unix_socket(str(socket_path), token=token)

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
    return LocalSandbox(address, f"a local sandbox (pid {process.pid})", process, directory)


def _prepare_packages(config: SandboxConfig) -> Path | None:
    """Return the overlay with the packages of a configuration; None if this machine has them all."""
    from coding_gym.sandbox.local.overlay import ensure_overlay
    from coding_gym.sandbox.packages import check_installed_on_machine, resolve_packages

    check_installed_on_machine(config.system_packages)
    return ensure_overlay(resolve_packages(config).requirements)


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


def _environment() -> dict[str, str]:
    # An allowlist, so that no secrets of the caller reach the sandbox.
    names = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "TZ", "MPLCONFIGDIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(lines) or "it printed nothing"
