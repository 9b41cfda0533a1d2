"""The apptainer provider: its containers where Apptainer is installed, else a program in its place that saves its arguments."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from coding_gym import SandboxConfig
from coding_gym.errors import ConfigurationError, ImageBuildError, ProviderUnavailableError, SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.apptainer.images import convert, converted_image, ensure_image
from coding_gym.sandbox.docker.images import image_name
from tests.support.requirements import require_apptainer
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import processes_of
from tests.support.timing import promptly

LOOK = """
import os, shutil, socket, subprocess
print(os.getuid(), os.getcwd(), shutil.disk_usage(".").total >> 20, subprocess.getoutput("id -un"))
print(os.path.exists("/opt/coding-gym"), os.path.exists("/proc/1"), "SECRET" in str(os.environ), os.path.exists({secret!r}))
for action in (lambda: open("/etc/new", "w"), lambda: socket.create_connection(("192.0.2.1", 80), 5)):
    try:
        action()
    except OSError as error:
        print(error.strerror)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Function that puts a program in place of Apptainer: it saves its arguments, and runs a script."""

    def put(script):
        program = tmp_path / "bin" / "apptainer"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/arguments\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return str(program)

    return put


@pytest.fixture
def tiny_image(docker_engine):
    """Name of an image with one file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    docker_engine.api.import_image_from_data(archive.getvalue(), repository="tiny", tag="1")
    yield "tiny:1"
    docker_engine.images.remove("tiny:1", force=True)


# Choice and errors


def test_missing_program_is_explained(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProviderUnavailableError, match=r"apptainer is not on PATH\. On a cluster, a module may provide it"):
        start_sandbox(SandboxConfig(provider="apptainer"))


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is not root")
def test_root_is_refused(stand_in):
    stand_in("exit 1")
    with pytest.raises(ProviderUnavailableError, match=r"this process is root\. Pass provider='docker'"):
        start_sandbox(SandboxConfig(provider="apptainer"))


def test_path_as_image_chooses_apptainer(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProviderUnavailableError, match="apptainer is not on PATH"):
        start_sandbox(SandboxConfig(image="/shared/image.sif"))


@pytest.mark.parametrize("option", ["runtime", "network"])
def test_options_of_engines_are_refused(option):
    with pytest.raises(ConfigurationError, match=f"provider='apptainer' does not have {option}="):
        SandboxConfig(provider="apptainer", **{option: "x"})


def test_image_that_does_not_exist_is_named(tmp_path):
    config = SandboxConfig(provider="apptainer", image=str(tmp_path / "none.sif"))
    with pytest.raises(ConfigurationError, match=r"Expected image= to be a \.sif file, .* found no '.*none\.sif'"):
        ensure_image("apptainer", config)


def test_packages_are_not_installed_in_a_given_image(tmp_path):
    config = SandboxConfig(provider="apptainer", image=str(tmp_path), packages=["toolz"])
    with pytest.raises(ConfigurationError, match="cannot be combined with image="):
        ensure_image("apptainer", config)


def test_default_image_without_engine_has_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(ProviderUnavailableError, match=r"no/such\.sock.*Convert it where there is an engine .* docs/slurm\.md"):
        ensure_image("apptainer", SandboxConfig(provider="apptainer"))


def test_converted_image_needs_no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    directory = converted_image(image_name())
    directory.mkdir(parents=True)
    assert ensure_image("apptainer", SandboxConfig(provider="apptainer")) == str(directory)


# Conversion


@pytest.mark.docker
def test_image_is_converted_from_the_archive_of_the_engine(stand_in, docker_engine, tiny_image, tmp_path):
    program = stand_in('tar --extract --to-stdout --file "${5#docker-archive:}" manifest.json; mkdir "$4"')
    target = tmp_path / "images" / "tiny"
    convert(program, docker_engine, tiny_image, target)
    command, *options, directory, source = (tmp_path / "arguments").read_text().splitlines()
    assert (command, options) == ("build", ["--sandbox", "--fix-perms"])
    assert Path(directory).parent == Path(source.removeprefix("docker-archive:")).parent
    assert os.listdir(target.parent) == ["tiny"]


@pytest.mark.docker
def test_failed_conversion_shows_log_and_leaves_nothing(stand_in, docker_engine, tiny_image, tmp_path):
    program = stand_in('mkdir "$4"; echo FATAL: no space left >&2; exit 255')
    with pytest.raises(ImageBuildError, match=r"cannot convert the image tiny:1.*\n  \| FATAL: no space left"):
        convert(program, docker_engine, tiny_image, tmp_path / "images" / "tiny")
    assert os.listdir(tmp_path / "images") == []


# Containers


@pytest.mark.skipif(os.geteuid() == 0, reason="root is refused")
def test_container_that_does_not_start_shows_why(stand_in, tmp_path):
    stand_in("echo 'FATAL: container creation failed: no user namespaces' >&2; exit 255")
    config = SandboxConfig(provider="apptainer", image=str(tmp_path), environment={"MPLBACKEND": "agg"})
    with pytest.raises(SandboxStartError, match="FATAL: container creation failed: no user namespaces"):
        start_sandbox(config)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["--silent", "exec"]
    assert {"--userns", "--containall", "--no-home", "--no-eval"} < set(arguments)
    assert arguments[arguments.index(str(tmp_path)) + 1] == "coding-gym-server"


@pytest.fixture(scope="module")
def config():
    require_apptainer()
    return SandboxConfig(provider="apptainer", preload=(), sessions=2, disk="8m")


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_sessions_have_mounts_and_the_files_of_the_image(config, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "hush")
    monkeypatch.setenv("APPTAINER_BIND", str(tmp_path))
    with contextlib.closing(start_sandbox(config)) as sandbox:
        isolation = sandbox.health()["isolation"]
        assert (isolation["own_namespaces"], isolation["session_mounts"], isolation["session_users"]) == (True, True, False)
        assert not isolation["capabilities"]
        for _ in range(2):
            with contextlib.closing(sandbox.connect()) as session:
                session.ask_step(LOOK.format(secret=str(tmp_path)))
                observation = session.wait(timeout=30).observation
            assert observation.stdout.splitlines() == [
                "10001 /home/user 8 sandbox",
                "True True False False",
                "Read-only file system",
                "Network is unreachable",
            ], observation.stderr


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_closing_ends_all_processes(config):
    sandbox = start_sandbox(config)
    with contextlib.closing(sandbox.connect()) as session:
        session.ask_step("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True).pid")
        session.wait(timeout=30)
        family = processes_of(sandbox)
        assert len(family) > 4
        with promptly():
            sandbox.close()
        assert gone_within(family) == []


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_killed_program_leaves_no_processes(config):
    with contextlib.closing(start_sandbox(config)) as sandbox:
        first, *family = processes_of(sandbox)
        first.kill()
        assert gone_within(family) == []
