"""A real X server, and programs that show windows on it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coding_gym_server.display.windows import WindowList
from coding_gym_server.workspace.xauthority import write_authority
from tests.display.display_programs import Program, XServer


@pytest.fixture
def x_server(xvfb: None, tmp_path: Path) -> Iterator[XServer]:
    authority = tmp_path / "authority"
    write_authority(authority, secrets.token_bytes(16))
    read, write = os.pipe()
    # An explicit display number: without abstract sockets, -displayfd alone could take over another server's socket.
    command = ["Xvfb", f":{20_000 + os.getpid() % 30_000}", "-displayfd", str(write), "-auth", str(authority)]
    options = "-screen 0 640x480x24 -nolisten tcp -nolisten local -noreset -nocursor -br -extension GLX"
    process = subprocess.Popen([*command, *options.split()], pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    with open(read) as number:
        name = f":{number.readline().strip()}"
    yield XServer(name, authority, process)
    process.kill()
    process.wait()


@pytest.fixture
def desktop(x_server: XServer) -> Iterator[WindowList]:
    with contextlib.closing(WindowList(x_server.name, x_server.authority)) as desktop:
        yield desktop


@pytest.fixture
def start(x_server: XServer) -> Iterator[Callable[[str], Program]]:
    programs: list[Program] = []

    def start(source: str) -> Program:
        programs.append(Program(source, x_server))
        return programs[-1]

    yield start
    for program in programs:
        program.end()
