"""A server without free file descriptors."""

from __future__ import annotations

import contextlib
import resource

import pytest

from coding_gym.errors import CodingGymError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.support.sandbox_processes import server_of

pytestmark = pytest.mark.lifecycle


def test_processes_start_again_once_descriptors_are_free():
    with contextlib.ExitStack() as stack:
        # The server is this user's, who may change its limits.
        config = SandboxConfig(provider="local", preload=(), session_users=False)
        sandbox = stack.enter_context(contextlib.closing(start_sandbox(config)))
        session = stack.enter_context(contextlib.closing(sandbox.connect()))
        session.ask_step("1")
        session.wait(timeout=30)
        processes = session.http.processes
        assert processes.run("true").exit_code == 0
        server = server_of(sandbox)
        used, limits = server.num_fds(), server.rlimit(resource.RLIMIT_NOFILE)
        # One descriptor is for the connection; a process needs six, two of which are opened at a time.
        for free in range(2, 7):
            server.rlimit(resource.RLIMIT_NOFILE, (used + free, limits[1]))
            with pytest.raises(CodingGymError, match="cannot connect to a process: Too many open files"):
                processes.run("true")
            server.rlimit(resource.RLIMIT_NOFILE, limits)
            assert processes.run("echo again").stdout == b"again\n"
        assert server.num_fds() <= used + 2
