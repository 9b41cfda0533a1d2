"""Sessions of root whose changed files lie on a disk of the engine, as they do before Linux 6.6."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from coding_gym import CodingEnv
from coding_gym.code_interpreter import CodeInterpreter
from coding_gym.errors import CodingGymError, ProtocolError
from coding_gym.sandbox.docker import engine, provider
from tests.support.timing import eventually

pytestmark = pytest.mark.docker

DEBIAN = "debian:trixie-slim"


@pytest.fixture(scope="module", autouse=True)
def on_disk(docker_engine):
    """An engine of this machine whose kernel is older than it is."""
    inspect = engine.inspect_engine

    def inspect_older(client):
        return dataclasses.replace(inspect(client), has_layers_in_memory=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provider, "inspect_engine", inspect_older)
        yield


@pytest.fixture(scope="module")
def env(docker_engine):
    with contextlib.closing(
        CodingEnv(provider="docker", image=DEBIAN, preload=(), screen=None, disk="64m", inodes=2000)
    ) as env:
        yield env


def shell(env, command):
    result = env.exec(command, timeout=60)
    assert result.exit_code == 0, result
    return result.stdout_text


def test_changes_are_those_of_an_episode(env):
    env.reset(seed=0, options={"files": {"given": "given"}})
    assert env.files.read("/given") == b"given"
    script = "rm -r /usr/share/doc /var/lib/dpkg; mkdir /var/lib/dpkg; mv /usr/bin/true /usr/bin/other; echo new >/etc/new"
    assert shell(env, f"{script}; ls -A /var/lib/dpkg /usr/bin/other; stat -f -c %T /usr") == (
        "/usr/bin/other\n\n/var/lib/dpkg:\noverlayfs\n"
    )
    for _ in range(3):
        # More than there are sessions ready.
        env.reset(seed=0)
        assert shell(
            env, "ls -d /usr/share/doc /usr/bin/true /var/lib/dpkg/status; ls /etc/new /given 2>/dev/null || true"
        ) == ("/usr/bin/true\n/usr/share/doc\n/var/lib/dpkg/status\n")


def test_size_is_limited(env):
    env.reset(seed=0)
    result = env.exec("head -c 100000000 /dev/zero >/var/large; sleep 60", timeout=60)
    assert result.limit_exceeded
    assert "bytes of changed files; the disk has 67,108,864" in result.lost
    env.reset(seed=0)
    assert shell(env, "ls /var/large 2>/dev/null || echo none") == "none\n"
    assert env.step("print(1)")[0]["stdout"] == "1\n"


def test_number_of_files_is_limited(env):
    env.reset(seed=0)
    result = env.exec("mkdir /var/many; cd /var/many; seq 3000 | xargs touch; sleep 60", timeout=60)
    assert result.limit_exceeded
    assert "changed files and directories; the limit is 2000" in result.lost.replace(",", "")


def test_programs_have_no_other_way_to_the_disk(env):
    env.reset(seed=0)
    listing = "ls -l /proc/self/fd /proc/1/fd 2>/dev/null; ls -A /.coding-gym-layers; cat /proc/self/mountinfo"
    lines = shell(env, listing).splitlines()
    assert not [line for line in lines if "layers" in line and "upperdir" not in line and " / /.coding-gym-layers " not in line]
    cell = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if int(fd) > 2])"
    assert "layers" not in env.step(cell)[0]["stdout"]


def test_volume_ends_with_the_container(docker_engine):
    before = {volume.name for volume in docker_engine.volumes.list()}
    with contextlib.closing(CodingEnv(provider="docker", root=True, preload=(), screen=None)) as env:
        env.reset(seed=0)
        assert shell(env, "touch /usr/new && pwd") == "/home/user\n"
        [container] = [
            each
            for each in docker_engine.containers.list()
            if any(
                mount["Destination"] == "/.coding-gym-layers" and mount["Name"] not in before for mount in each.attrs["Mounts"]
            )
        ]
        [name] = [mount["Name"] for mount in container.attrs["Mounts"] if mount["Destination"] == "/.coding-gym-layers"]
    assert eventually(lambda: name not in {volume.name for volume in docker_engine.volumes.list()})


def test_contexts_that_share_files_are_refused_with_the_reason(docker_engine):
    with (
        CodeInterpreter(provider="docker", image=DEBIAN, preload=(), sessions=2) as interpreter,
        pytest.raises((ProtocolError, CodingGymError), match=r"require Linux 6\.6"),
    ):
        interpreter.contexts.create()
