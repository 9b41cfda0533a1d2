"""Server that a test starts directly, as ``docker run`` or a user's shell would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil

from tests.support.timing import eventually

__all__ = ["RunningServer", "free_port", "gone_within", "is_alive", "is_healthy"]


class RunningServer:
    """Process of ``python -m coding_gym_server`` on a TCP port of 127.0.0.1.

    Args:
        directory: Directory for the log and the workspaces.
        arguments: Additional arguments of the server.
        token: Token of the server, None for no token.
        port: TCP port; None for a free one.
        program: Arguments of the interpreter that select the program to run.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        token: str | None = None,
        port: int | None = None,
        program: Sequence[str] = ("-P", "-m", "coding_gym_server"),
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = token
        self.log = directory / f"server-{self.port}.log"
        environment = {name: value for name, value in os.environ.items() if name != "CODING_GYM_TOKEN"}
        if token is not None:
            environment["CODING_GYM_TOKEN"] = token
        command = [sys.executable, *program, "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--workspaces", str(directory / f"ws-{self.port}"), "--preload", "", *arguments],
                stdout=output,
                stderr=output,
                env=environment,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def family(self) -> list[psutil.Process]:
        """Return the server and its descendants that are still alive."""
        server = psutil.Process(self.process.pid)
        return [process for process in (server, *server.children(recursive=True)) if is_alive(process)]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _wait_until_healthy(self) -> None:
        eventually(lambda: not self.is_alive() or is_healthy(self.url))
        assert is_healthy(self.url), self.log.read_text()


def is_healthy(url: str) -> bool:
    """Return whether a server answers at a URL that it is healthy."""
    try:
        # With verification, each request would load the certificates of authorities.
        return httpx.get(f"{url}/health", verify=False).json()["status"] == "healthy"
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gone_within(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait for the end of processes; return those that stay alive."""
    eventually(lambda: not any(map(is_alive, processes)))
    return [process for process in processes if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process has neither exited nor is a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
