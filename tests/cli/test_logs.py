from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.cli.conftest import environment


def logs(*arguments: str):
    return CliRunner().invoke(app, ["logs", *arguments], catch_exceptions=False)


@pytest.fixture
def local(monkeypatch):
    """A local sandbox whose log has three lines, the only one of its user; without an engine."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    # Shorter than the paths of pytest, for a Unix socket.
    with tempfile.TemporaryDirectory() as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
        sandbox = start_sandbox(SandboxConfig(provider="local", preload=(), spare_workers=0))
        [directory] = Path(base).glob("coding-gym-*/*")
        with (directory / "log").open("a") as log:
            log.write("one\ntwo\nthree\n")
        yield directory
        sandbox.close()


def test_log_of_local_sandbox_is_shown_by_its_names(local):
    import os

    assert logs().stdout.endswith("one\ntwo\nthree\n")
    for name in (local.name, local.name[:-1], str(os.getpid())):
        result = logs(name, "--lines", "2")
        assert (result.exit_code, result.stdout) == (0, "two\nthree\n")
        assert f"==> {local.name} (local" in result.stderr
    assert logs("--lines", "0").stdout == ""


def test_unknown_sandbox_is_refused_with_the_known_ones(local):
    result = logs("nope")
    assert result.exit_code == 2
    assert local.name in result.stderr


def test_followed_log_ends_with_its_sandbox(local):
    command = [sys.executable, "-m", "coding_gym", "logs", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert [process.stdout.readline() for _ in range(3)][-1] == "three\n"
        with (local / "log").open("a") as log:
            log.write("four\n")
        assert process.stdout.readline() == "four\n"
        (local / "log").rename(local / "gone")
        assert process.wait(30) == 0


def test_no_sandbox_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    result = logs()
    assert (result.exit_code, result.stdout) == (0, "There are no sandboxes.\n")


@pytest.mark.docker
def test_log_of_container_is_shown(docker_engine):
    sandbox = start_sandbox(SandboxConfig(provider="docker", preload=(), sessions=2))
    try:
        name = sandbox.container.name
        result = logs(name)
        assert (result.exit_code, f"==> {name} (docker" in result.stderr) == (0, True)
        command = [sys.executable, "-m", "coding_gym", "logs", "-f", name]
        with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
            assert f"==> {name}" in process.stderr.readline()
            assert process.poll() is None
            sandbox.close()
            assert process.wait(20) == 0
    finally:
        sandbox.close()
