from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import docker
import gymnasium as gym
import msgspec
import pytest
from docker.errors import NotFound
from docker.models.containers import Container
from typer.testing import CliRunner, Result

import coding_gym
from coding_gym.cli import main as cli
from coding_gym.cli.doctor import MEANINGS, Diagnosis, diagnose
from coding_gym.errors import ImageBuildError
from coding_gym.sandbox import process_tree
from coding_gym.sandbox.docker import cleanup, derived_images, dockerfiles, provider
from coding_gym.sandbox.docker import images as image_module
from coding_gym.sandbox.docker import runtime as runtime_module
from coding_gym.sandbox.ownership import OwnerProcess
from coding_gym_server.isolation.probe import IsolationReport, probe

_REPOSITORY = "coding-gym-test/sandbox"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def line_of(name: str, result: Result) -> str:
    return next((line for line in result.output.splitlines() if name in line), "")


@pytest.fixture
def label(monkeypatch: pytest.MonkeyPatch) -> str:
    """A dedicated owner label for containers, so that no other process removes the orphans."""
    label = f"coding_gym.owner-of-test-{os.getpid()}"
    for module in (cleanup, provider):
        monkeypatch.setattr(module, "LABEL_OWNER", label)
    return label


@pytest.fixture
def image(docker_engine: docker.DockerClient) -> str:
    return image_module.ensure_image(docker_engine, None)


@pytest.fixture
def living(image: str, label: str) -> Iterator[str]:
    """Name of the container of a running environment."""
    with contextlib.closing(gym.make("CodingEnv-v0", provider="docker", preload=())) as env:
        env.reset(seed=0)
        yield env.unwrapped.sandbox.container.name


@pytest.fixture
def make_container(docker_engine: docker.DockerClient, image: str, label: str) -> Iterator[Callable[..., Container]]:
    """Create containers of given owners, and remove them at the end."""
    with contextlib.ExitStack() as stack:

        def make(owner: OwnerProcess, image: str = image) -> Container:
            container = docker_engine.containers.create(image, labels={label: str(owner)})
            stack.callback(_remove, container)
            return container

        yield make


@pytest.fixture
def orphan(make_container: Callable[..., Container]) -> Container:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return make_container(OwnerProcess(OwnerProcess.current().host, process.pid, 1))


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"coding-gym {coding_gym.__version__}\n"


def test_cli_import_loads_no_provider():
    heavy = "{'docker', 'rich.table', 'coding_gym.sandbox.docker.provider'}"
    code = f"import sys, coding_gym.cli.main; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.docker
def test_ps_shows_owners_and_prune_removes_orphans(living: str, orphan: Container, make_container):
    elsewhere = make_container(OwnerProcess("another-machine/boot/1", 1, 1))
    result = run("ps")
    assert result.exit_code == 0
    row = line_of(living, result)
    assert "running" in row
    assert "alive" in row
    assert str(OwnerProcess.current().pid) in row
    assert image_module.image_name() in row
    assert "gone" in line_of(orphan.name, result)
    assert "elsewhere" in line_of(elsewhere.name, result)
    result = run("prune")
    assert result.exit_code == 0
    assert f"removed container {orphan.name}\n" in result.output
    listed = run("ps")
    assert not line_of(orphan.name, listed)
    assert line_of(living, listed)
    assert line_of(elsewhere.name, listed)


@pytest.mark.docker
def test_ps_without_containers_prints_message(docker_engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cleanup, "our_containers", lambda _: [])
    assert run("ps").output == "There are no containers.\n"


@pytest.mark.docker
def test_prune_all_removes_containers_of_living_owners(living: str, make_container, monkeypatch: pytest.MonkeyPatch):
    elsewhere = make_container(OwnerProcess("another-machine/boot/1", 1, 1))
    # The engine may be shared: leave unrelated containers alone.
    everybodys = cleanup.our_containers
    names = {living, elsewhere.name}
    monkeypatch.setattr(
        cleanup, "our_containers", lambda client: [entry for entry in everybodys(client) if entry[0].name in names]
    )
    result = run("prune", "--all")
    assert result.exit_code == 0
    assert all(f"removed container {name}\n" in result.output for name in names)
    assert run("prune", "--all").output == "There was nothing to remove.\n"


@pytest.mark.docker
def test_prune_images_removes_old_unused_images(
    docker_engine: docker.DockerClient, orphan: Container, make_container, monkeypatch: pytest.MonkeyPatch
):
    # A separate repository, so that unrelated images are left alone.
    monkeypatch.setattr(image_module, "IMAGE_REPOSITORY", _REPOSITORY)
    monkeypatch.setattr(image_module, "image_name", lambda: f"{_REPOSITORY}:current")
    monkeypatch.setattr(dockerfiles, "BUILT_REPOSITORY", "coding-gym-test/built")
    monkeypatch.setattr(cleanup, "our_containers", lambda _: [])
    prefix = "coding-gym-test-runtime-"
    monkeypatch.setattr(runtime_module, "RUNTIME_PREFIX", prefix)
    monkeypatch.setattr(runtime_module, "image_name", lambda: f"{_REPOSITORY}:current")
    volumes = [
        docker_engine.volumes.create(f"{prefix}{name}") for name in ("current", "current.complete", "old", "old.complete")
    ]
    try:
        for tag in ("current", "current-packages", "old", "old-packages", "used"):
            orphan.commit(_REPOSITORY, tag, changes=f"LABEL test={tag}")
        make_container(OwnerProcess.current(), f"{_REPOSITORY}:used")
        removed = set(run("prune", "--images").output.splitlines())
        old = [f"removed image {_REPOSITORY}:old", f"removed image {_REPOSITORY}:old-packages"]
        assert removed == {*old, f"removed volume {prefix}old", f"removed volume {prefix}old.complete"}
        assert {tag for image in docker_engine.images.list(_REPOSITORY) for tag in image.tags} == {
            f"{_REPOSITORY}:current",
            f"{_REPOSITORY}:current-packages",
            f"{_REPOSITORY}:used",
        }
    finally:
        for image in docker_engine.images.list(_REPOSITORY):
            docker_engine.images.remove(image.tags[0], force=True)
        for volume in volumes:
            with contextlib.suppress(NotFound):
                volume.remove(force=True)


@pytest.mark.docker
def test_build_image_reports_existing_image(image: str):
    result = run("build-image")
    assert result.exit_code == 0
    assert "image exists already" in result.output
    assert result.output.splitlines()[-1] == image
    assert run("build-image", "--quiet").output == f"{image}\n"


@pytest.mark.docker
def test_build_image_streams_build_log(docker_engine, monkeypatch: pytest.MonkeyPatch):
    lines = ["Step 1/2 : FROM debian:trixie-slim", " ---> d03b9b34d34e", "Step 2/2 : COPY . /opt"]

    def build(client, *, arguments, on_line, force):
        assert force
        for line in lines:
            on_line(line)
        return "coding-gym/sandbox:test"

    monkeypatch.setattr(image_module, "build_image", build)
    result = run("build-image", "--force")
    assert result.output.splitlines() == [*lines, "coding-gym/sandbox:test"]


@pytest.mark.docker
def test_build_image_passes_build_arguments_and_tag(docker_engine, monkeypatch: pytest.MonkeyPatch):
    asked = {}
    monkeypatch.setattr(image_module, "build_image", lambda client, **options: asked.update(options) or "made")
    monkeypatch.setattr(image_module, "tag_image", lambda client, name, tag: f"{name} as {tag}")
    result = run("build-image", "--build-arg", "WITH_OPENGL=1", "--build-arg", "WITH_GUI=", "-t", "mine:gl", "-q")
    assert result.output == "made as mine:gl\n"
    assert asked["arguments"] == {"WITH_OPENGL": "1", "WITH_GUI": ""}


@pytest.mark.docker
def test_build_image_refuses_unknown_languages(docker_engine):
    result = run("build-image", "--languages", "cpp, cobol")
    assert result.exit_code == 2
    assert "'cobol'" in result.stderr


@pytest.mark.docker
def test_build_image_installs_languages(image: str, docker_engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        derived_images, "ensure_image_with_packages", lambda client, config: f"{config.image} {config.languages}"
    )
    assert run("build-image", "--languages", "cpp, lua", "-q").output == f"{image} ('cpp', 'lua')\n"


@pytest.mark.docker
@pytest.mark.parametrize(("argument", "reason"), [("WITH_OPENGL", "NAME=VALUE"), ("WITH_OPENGLL=1", "WITH_OPENGL,")])
def test_build_image_refuses_invalid_build_arguments(argument: str, reason: str, docker_engine):
    result = run("build-image", "--build-arg", argument)
    assert result.exit_code == 2
    assert reason in result.stderr


@pytest.mark.docker
def test_failed_build_is_explained_on_stderr(docker_engine, monkeypatch: pytest.MonkeyPatch):
    def build(client, **_):
        raise ImageBuildError("The image does not build.", ["no network"])

    monkeypatch.setattr(image_module, "build_image", build)
    result = run("build-image")
    assert result.exit_code == 1
    assert "The image does not build." in result.stderr
    assert "no network" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [["ps"], ["prune"], ["build-image"]])
def test_command_without_engine_reports_unavailable_provider(command: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    result = run(*command)
    assert result.exit_code == 1
    assert "The docker provider is not available" in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("age", "shown"), [({"seconds": 5}, "5 s"), ({"minutes": 5}, "5 min"), ({"hours": 5}, "5 h"), ({"days": 5}, "5 d")]
)
def test_container_age_is_formatted(age: dict[str, int], shown: str):
    # The format of the engine, with nanoseconds.
    created = f"{datetime.now(UTC) - timedelta(**age):%Y-%m-%dT%H:%M:%S}.000000789Z"
    assert cli._age(SimpleNamespace(attrs={"Created": created})) == shown


def _remove(container: Container) -> None:
    with contextlib.suppress(docker.errors.NotFound):
        container.remove(force=True)


def test_doctor_reports_working_providers_and_isolation() -> None:
    result = run("doctor", "--json")
    found = {entry["provider"]: entry for entry in json.loads(result.stdout)}
    assert set(found) - {"apptainer"} == {"docker", "local"}
    assert result.exit_code == (0 if any(entry["works"] for entry in found.values()) else 1)
    for entry in found.values():
        if entry["works"]:
            assert entry["isolation"]["landlock_abi"] >= 0
            assert entry["start_seconds"] > 0
        else:
            assert entry["problem"]


def test_doctor_explains_its_rows() -> None:
    assert set(IsolationReport.__struct_fields__) <= set(MEANINGS)
    result = run("doctor")
    for entry in json.loads(run("doctor", "--json").stdout):
        for name in {*entry["facts"], *(name for name, value in entry["isolation"].items() if value != "")}:
            assert MEANINGS[name].split()[0] in result.output


def test_doctor_names_package_for_missing_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A PATH without Xvfb.
    monkeypatch.setenv("PATH", str(tmp_path))
    diagnosis = diagnose("local")
    if not diagnosis.works:
        pytest.skip(diagnosis.problem)
    assert not diagnosis.facts["screen"]
    assert "apt install xvfb" in diagnosis.problem


def test_doctor_reports_missing_engine_and_old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    monkeypatch.setattr(process_tree, "probe", lambda: msgspec.structs.replace(probe(), seccomp=False))
    result = run("doctor")
    assert result.exit_code == 1
    assert "nonexistent" in result.output
    assert "seccomp" in result.output
    assert "No sandbox is available here." in result.output


def test_text_in_brackets_is_shown(monkeypatch):
    problem = "programs have no screen: install Xvfb (apt install xvfb) and xcffib (pip install 'coding-gym[display]')"
    monkeypatch.setattr(
        "coding_gym.cli.doctor.diagnose",
        lambda provider, **_: Diagnosis(provider=provider, works=True, problem=problem, facts={"engine": "[red]odd[/red]"}),
    )
    result = CliRunner().invoke(cli.app, ["doctor"], catch_exceptions=False)
    assert "coding-gym[display]" in result.output
    assert "[red]odd[/red]" in result.output
