"""The docker provider with Podman, whose service these tests start."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.images import image_name
from tests.support.timing import eventually

LOOK = """
import os, shutil
print(open("/proc/self/uid_map").read(), os.getuid(), shutil.disk_usage(".").total)
"""

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def service(docker_engine, tmp_path_factory):
    """Podman as the engine, with the image of Docker."""
    if shutil.which("podman") is None:
        pytest.skip("needs podman")
    if subprocess.run(["podman", "image", "exists", f"localhost/{image_name()}"]).returncode:
        subprocess.run(f"docker save {image_name()} | podman load --quiet", shell=True, check=True, capture_output=True)
    socket = tmp_path_factory.mktemp("podman") / "socket"
    process = subprocess.Popen(["podman", "system", "service", "--time", "0", f"unix://{socket}"])
    try:
        assert eventually(socket.exists, 30)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{socket}")
            yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def started(caplog):
    """A sandbox of Podman, and what was logged at its start."""
    with (
        caplog.at_level(logging.WARNING, "coding_gym"),
        contextlib.closing(start_sandbox(SandboxConfig(provider="docker", preload=(), sessions=2, disk="8m"))) as sandbox,
    ):
        yield sandbox, [record.getMessage() for record in caplog.records]


def test_sessions_have_users(started):
    sandbox, _ = started
    isolation = sandbox.health()["isolation"]
    assert (isolation["session_users"], isolation["shared_user_reason"]) == (True, "")
    seen = set()
    for _ in range(2):
        with contextlib.closing(sandbox.connect()) as session:
            session.ask_step(
                "import os, shutil; print(open('/proc/self/uid_map').read(), os.getuid(), shutil.disk_usage('.').total)"
            )
            inside, outside, count, user, size = session.wait(timeout=30).observation.stdout.split()
            assert (inside, count, user, int(size)) == ("10001", "1", "10001", 8 << 20)
            seen.add(outside)
    assert len(seen) == 2


def test_limits_that_the_engine_leaves_out_are_logged(started):
    sandbox, logged = started
    enforced = sandbox.container.attrs["HostConfig"]["Memory"]
    said = [message for message in logged if "the engine does not enforce" in message]
    assert enforced in (0, 2 << 30)
    assert bool(said) == (enforced == 0)
    if os.geteuid() == 0:
        assert enforced
