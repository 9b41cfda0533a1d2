"""Runs shell commands as a reader of the documentation would, and the server that examples connect to."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from coding_gym.cli.main import app
from tests.docs.python_blocks import same_output
from tests.support.running_server import RunningServer, free_port, is_healthy
from tests.support.timing import eventually

__all__ = ["CommandServer", "ExampleServer", "commands_of", "run_console"]

_COMMAND_TIMEOUT = 240
_START_TIMEOUT = 180
_KEEPALIVE = '{"type":"keepalive"}\n'
"""Sent while a result takes long, as on a loaded machine."""
_SHELL_SYNTAX = re.compile(r"[|&;<>$`(){}*?~#\n]")
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?", re.MULTILINE)


def run_console(text: str, directory: Path) -> None:
    """Run the commands of a block in a directory.

    Raises:
        AssertionError: A command fails, or its standard output differs from the one shown.
    """
    for command, expected in commands_of(text):
        code, stdout, stderr = _run(command, directory)
        stdout = stdout.replace(_KEEPALIVE, "")
        assert code == 0, f"$ {command}\n{stdout}{stderr}[exit code {code}]"
        assert not expected.strip() or same_output(expected, stdout), f"$ {command}\nshown:\n{expected}found:\n{stdout}"


class ExampleServer:
    """A server of the local installation, for pages that connect to one without starting it."""

    def __init__(self, directory: Path) -> None:
        self._server = RunningServer(directory)
        self.port = self._server.port

    def stop(self) -> None:
        self._server.stop()


class CommandServer:
    """Server started by the last command of a block; the commands before it run to completion.

    Args:
        text: The block, whose server is published at port 8000.
        directory: The working directory.
    """

    def __init__(self, text: str, directory: Path) -> None:
        self.port = free_port()
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}").replace(
            "coding-gym serve", f"coding-gym serve --port {self.port}"
        )
        commands = [command for command, _ in commands_of(text)]
        self._log = directory / "server.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-ec", "\n".join([*commands[:-1], f"exec {commands[-1]}"])],
                cwd=directory,
                env=_environment(),
                stdout=output,
                stderr=output,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def _wait_until_healthy(self) -> None:
        url = f"http://127.0.0.1:{self.port}"
        eventually(lambda: self._process.poll() is not None or is_healthy(url), _START_TIMEOUT)
        assert is_healthy(url), self._log.read_text()


def _run(command: str, directory: Path) -> tuple[int, str, str]:
    """Run a command: one of ours in this process, which has imported everything already, after what a pipe feeds it with."""
    feed, _, ours = command.rpartition(" | ")
    if not ours.startswith("coding-gym ") or _SHELL_SYNTAX.search(ours):
        return _run_in_shell(command, directory)
    code, stdin, stderr = _run_in_shell(feed, directory) if feed else (0, "", "")
    return (code, stdin, stderr) if code else _run_here(ours, directory, stdin)


def _run_in_shell(command: str, directory: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=_environment(),
        timeout=_COMMAND_TIMEOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def _run_here(command: str, directory: Path, stdin: str) -> tuple[int, str, str]:
    with contextlib.chdir(directory):
        done = CliRunner().invoke(app, shlex.split(command)[1:], stdin)
    trace = "".join(traceback.format_exception(done.exception)) if done.exit_code else ""
    return done.exit_code, done.stdout, done.stderr + trace


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command with its expected output."""
    matches = list(_COMMAND.finditer(text))
    assert matches, "the block has no command: begin it with '$ '"
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        yield match["command"], text[match.end() : following.start() if following else None]


def _environment() -> dict[str, str]:
    programs = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
