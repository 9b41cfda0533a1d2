"""Servers on kernels that lack layers of isolation."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from coding_gym.errors import SandboxStartError
from tests.support.plain_container import plain_container
from tests.support.running_server import RunningServer

# As in a gVisor container, where the system calls do not exist.
WITHOUT = """
import sys
from coding_gym_server.isolation import {module}
{module}.{name} = lambda: {value}
from coding_gym_server import __main__
sys.argv = ["coding-gym-server", *sys.argv[1:]]
__main__.main()
"""
LACKS = {
    "landlock": ("landlock", "abi_version", "0"),
    "scopes": ("landlock", "abi_version", "5"),
    "seccomp": ("seccomp", "is_available", "False"),
}


def script(lack):
    module, name, value = LACKS[lack]
    return WITHOUT.format(module=module, name=name, value=value)


def test_require_refuses_to_start_without_filter(tmp_path):
    command = [sys.executable, "-c", script("seccomp"), "--isolation", "require", "--workspaces", str(tmp_path / "ws")]
    server = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (server.returncode, "seccomp" in server.stderr) == (1, True)


@pytest.mark.docker
def test_require_refuses_one_session_without_scopes(docker_engine):
    with pytest.raises(SandboxStartError, match="requires namespaces, or Landlock ABI 6"):
        plain_container(landlock=False, isolation="require").__enter__()


@pytest.mark.parametrize("lack", LACKS)
def test_sessions_with_namespaces_need_no_other_layer(tmp_path, lack):
    with RunningServer(tmp_path, "--isolation", "prefer", program=("-c", script(lack))) as server:
        isolation = httpx.get(f"{server.url}/health").json()["isolation"]
        assert isolation["policy"] == "prefer"
        assert isolation["landlock_abi"] == (int(LACKS[lack][2]) if LACKS[lack][0] == "landlock" else isolation["landlock_abi"])
        # That of its namespaces.
        assert isolation["signal_scope"] is True
        assert isolation["seccomp"] == (lack != "seccomp")
        step = httpx.post(f"{server.url}/step", json={"action": {"code": "print(6 * 7)"}})
        assert step.json()["observation"]["stdout"] == "42\n"
