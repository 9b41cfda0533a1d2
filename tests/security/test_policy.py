"""Servers on kernels that cannot isolate sessions."""

from __future__ import annotations

import subprocess
import sys

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
    "scopes": ("landlock", "abi_version", "5", "Landlock ABI 6"),
    "seccomp": ("seccomp", "is_available", "False", "seccomp"),
}


def script(lack):
    module, name, value, _ = LACKS[lack]
    return WITHOUT.format(module=module, name=name, value=value)


@pytest.mark.parametrize("lack", LACKS)
def test_require_refuses_to_start(tmp_path, lack):
    command = [sys.executable, "-c", script(lack), "--isolation", "require", "--workspaces", str(tmp_path / "ws")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert LACKS[lack][3] in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("lack", LACKS)
def test_prefer_starts_and_reports_missing_isolation(tmp_path, monkeypatch, lack):
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: start([command[0], "-c", script(lack), *command[3:]], **options)
    )
    with RunningServer(tmp_path, "--isolation", "prefer") as server:
        monkeypatch.undo()
        isolation = httpx.get(f"{server.url}/health").json()["isolation"]
        assert isolation["policy"] == "prefer"
        assert isolation["landlock_abi"] == (int(LACKS[lack][2]) if LACKS[lack][0] == "landlock" else isolation["landlock_abi"])
        assert isolation["signal_scope"] == (lack == "seccomp")
        assert isolation["seccomp"] == (lack != "seccomp")
        step = httpx.post(f"{server.url}/step", json={"action": {"code": "print(6 * 7)"}})
        assert step.json()["observation"]["stdout"] == "42\n"
