"""gVisor, a kernel without Landlock and subreapers, over TCP; requires an engine with the runtime ``runsc``."""

from __future__ import annotations

import pytest

from coding_gym.errors import SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker
GVISOR = {"provider": "docker", "runtime": "runsc", "transport": "tcp", "preload": ()}


@pytest.fixture(scope="module")
def gvisor(docker_engine):
    if "runsc" not in docker_engine.info()["Runtimes"]:
        pytest.skip("the engine has no runtime runsc")
    with lasting_sandbox(**GVISOR) as sandbox:
        yield sandbox


@pytest.fixture
def session(connect, gvisor):
    return connect(gvisor)


def test_health_reports_missing_isolation(gvisor):
    isolation = gvisor.health()["isolation"]
    assert isolation["landlock_abi"] == 0
    assert isolation["signal_scope"] is False
    assert isolation["policy"] == "prefer"


def test_isolation_require_is_refused(gvisor):
    with pytest.raises(SandboxStartError, match="Landlock"):
        start_sandbox(SandboxConfig(**GVISOR, isolation="require"))


def test_reset_clears_state_and_files(session):
    session.run("x = 41\nopen('f', 'w').write('y')")
    assert session.run("x + 1").stdout == "42\n"
    assert session.run("open('f').read()").stdout == "'y'\n"
    assert "ZeroDivisionError" in session.run("1 / 0").stderr
    session.reset()
    assert "NameError" in session.run("x").stderr
    assert session.run("__import__('os').listdir()").stdout == "[]\n"


def test_session_survives_timeout_and_worker_death(session):
    assert session.run("while True: pass", timeout=1).metadata.outcome == "timeout"
    assert session.run("import os; os.kill(os.getpid(), 9)").exit_code == 137
    assert session.run("1 + 1").stdout == "2\n"


def test_reset_ends_orphaned_processes(session):
    session.run("import subprocess; subprocess.run(['sh', '-c', '(sleep 1000 &) ; exit'])")
    find = "[p for p in __import__('glob').glob('/proc/[0-9]*/cmdline') if b'sleep' in open(p, 'rb').read()]"
    assert session.run(find).stdout != "[]\n"
    session.reset()
    assert session.run(find).stdout == "[]\n"
