"""Servers on kernels that cannot isolate sessions."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

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
    "landlock": ("landlock", "abi_version", "0", "Landlock"),
    "scopes": ("landlock", "abi_version", "5", "namespaces, or Landlock ABI 6"),
    "seccomp": ("seccomp", "is_available", "False", "seccomp"),
}


def script(lack):
    module, name, value, _ = LACKS[lack]
    return WITHOUT.format(module=module, name=name, value=value)


def test_require_refuses_to_start(tmp_path):
    def start(lack):
        command = [sys.executable, "-c", script(lack), "--isolation", "require", "--workspaces", str(tmp_path / lack)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    with ThreadPoolExecutor() as pool:
        ended = dict(zip(LACKS, pool.map(start, LACKS), strict=True))
    assert {lack: server.returncode for lack, server in ended.items()} == dict.fromkeys(LACKS, 1)
    assert {lack: server.stderr for lack, server in ended.items() if LACKS[lack][3] not in server.stderr} == {}


@pytest.mark.parametrize("lack", LACKS)
def test_prefer_starts_and_reports_missing_isolation(tmp_path, lack):
    with RunningServer(tmp_path, "--isolation", "prefer", program=("-c", script(lack))) as server:
        isolation = httpx.get(f"{server.url}/health").json()["isolation"]
        assert isolation["policy"] == "prefer"
        assert isolation["landlock_abi"] == (int(LACKS[lack][2]) if LACKS[lack][0] == "landlock" else isolation["landlock_abi"])
        assert isolation["signal_scope"] == (lack == "seccomp")
        assert isolation["seccomp"] == (lack != "seccomp")
        step = httpx.post(f"{server.url}/step", json={"action": {"code": "print(6 * 7)"}})
        assert step.json()["observation"]["stdout"] == "42\n"
