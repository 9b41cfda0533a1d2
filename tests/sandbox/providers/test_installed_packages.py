from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import httpx
import packaging
import psutil
import pytest
from docker.errors import ImageNotFound

import coding_gym_server
from coding_gym import SandboxConfig, SandboxPool
from coding_gym.errors import ConfigurationError, PackageInstallError, SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.docker import derived_images
from coding_gym.sandbox.docker.cleanup import our_containers, remove_orphans
from coding_gym.sandbox.docker.derived_images import ensure_packages, ensure_system_packages
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.sandbox.docker.provider import LABEL_OWNER
from coding_gym.sandbox.local.overlay import ensure_overlay
from coding_gym.sandbox.packages import check_installed_on_machine
from coding_gym_server.protocol.grading import Asserts, Submission
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.program_requests import client_of, post_program
from tests.support.running_server import RunningServer, free_port, is_healthy
from tests.support.timing import eventually

MISSING = "surely-nobody-calls-a-package-this"
PACKAGES = ("toolz", "yaml", "math", "dataclasses")


def run(sandbox, code):
    with contextlib.closing(sandbox.connect()) as session:
        session.ask_step(textwrap.dedent(code))
        observation = session.wait(timeout=40).observation
    assert observation.stderr == ""
    return observation.stdout.strip()


def zygote_config(server):
    """Return the configuration that the server has passed to the zygote on its command line."""
    for process in psutil.Process(server).children(recursive=True):
        command = process.cmdline()
        if "coding_gym_server.zygote.bootstrap" in command:
            return json.loads(command[-1])
    raise AssertionError


def installations(caplog):
    return [record.message for record in caplog.records if record.message.startswith("installing")]


def make_wheel(directory, name, version):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-program = {name}:__doc__\n",
    }
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Make pip search packages only in a directory of wheels, which is fast."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for name, version in (("sample", "1.0"), ("sample", "2.0"), ("numpy", "0.1")):
        make_wheel(directory, name, version)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


# The local provider


@pytest.fixture
def cache(tmp_path, monkeypatch, wheels):
    """Directory for the overlays of a user without any."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coding_gym" / "packages"


@pytest.fixture(scope="module")
def toolz(tmp_path_factory):
    """Cache directory of a user with an overlay that contains toolz."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        ensure_overlay(("toolz",))
        yield os.environ["XDG_CACHE_HOME"]


@pytest.fixture
def local(toolz, monkeypatch):
    """Function that starts sandboxes with this cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", toolz)
    with contextlib.ExitStack() as stack:
        yield lambda *packages, **options: stack.enter_context(
            contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=(), packages=packages, **options)))
        )


@pytest.fixture(scope="module")
def sandbox(toolz):
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", toolz)
            sandbox = stack.enter_context(lasting_sandbox(provider="local", preload=("toolz",), packages=PACKAGES))
        yield sandbox


def test_environment_without_pip_is_explained(tmp_path):
    venv.create(tmp_path / "environment", with_pip=False)
    modules = tmp_path / "modules"
    modules.mkdir()
    for module in (coding_gym_server, packaging):
        (modules / module.__name__).symlink_to(Path(module.__file__).parent)
    program = "from coding_gym_server.packages.install import install; install(['toolz'], overlay='overlay')"
    result = subprocess.run(
        [tmp_path / "environment" / "bin" / "python", "-c", program],
        env={**os.environ, "PYTHONPATH": str(modules)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{tmp_path}/environment has no pip" in result.stderr


def test_submissions_and_programs_import_local_packages(sandbox):
    code = "import toolz\ndef first(): return toolz.first([1])"
    submission = Submission(code=code, tests=Asserts(cases=("assert first() == 1",)))
    with contextlib.closing(sandbox.connect()) as session:
        assert session.grade(submission, timeout=40).outcome.value == "passed"
    with client_of(sandbox) as http:
        result = post_program(http, {"code": f"{code}\nprint(first())", "language": "python"}).json()["run_result"]
    assert (result["stdout"], result["stderr"]) == ("1\n", "")


def test_local_packages_are_last_and_read_only(sandbox, toolz):
    found = json.loads(
        run(
            sandbox,
            """
            import json, os, sys, toolz, yaml, dataclasses
            def attempt(action):
                try:
                    action()
                except OSError as error:
                    return type(error).__name__
                return "done"
            place = os.path.dirname(os.path.dirname(toolz.__file__))
            print(json.dumps({
                "place": place,
                "last": sys.path[-1],
                "write": attempt(lambda: open(place + "/toolz/x.py", "w")),
                "change": attempt(lambda: open(toolz.__file__, "a")),
            }))
            """,
        )
    )
    assert found["place"] == found["last"]
    assert Path(found["place"]).is_relative_to(toolz)
    assert found["write"] in ("PermissionError", "OSError")
    assert found["change"] in ("PermissionError", "OSError")


def test_child_interpreters_see_local_packages(sandbox):
    child = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import toolz'], check=True).returncode)"
    assert run(sandbox, child) == "0"


def test_local_packages_can_be_preloaded(sandbox):
    assert run(sandbox, "import sys; print('toolz' in sys.modules)") == "True"


def test_local_modules_are_authorised(sandbox):
    config = zygote_config(sandbox._process.pid)
    assert set(config["authorized_imports"]) == {"_yaml", "dataclasses", "math", "tlz", "toolz", "yaml"}


def test_sandbox_without_packages_has_no_overlay(local):
    assert run(local(), "import importlib.util; print(importlib.util.find_spec('toolz'))") == "None"


def test_present_packages_are_not_reinstalled(cache):
    assert ensure_overlay(("numpy", "pillow")) is None
    assert ensure_overlay(()) is None
    assert not cache.exists()


def test_pool_reports_unknown_package_without_retries(cache, caplog):
    pool = SandboxPool(4, provider="local", preload=(), packages=["sample", MISSING])
    expected = pytest.raises(PackageInstallError, match=f"No matching distribution found for {MISSING}")
    with contextlib.closing(pool), expected as caught:
        pool.start()
    assert caught.value.requirements == ("sample", MISSING)
    assert os.listdir(cache) == ["lock"]
    assert len(installations(caplog)) == 1


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("numpy<1", "The user requested (constraint) numpy=="),
        ("numpy @ file:///nowhere/numpy-1.0-py3-none-any.whl", "numpy: already installed in this interpreter"),
        ("sample @ file:///nowhere/sample-4.0-py3-none-any.whl", "No such file or directory"),
    ],
)
def test_requirements_replacing_installed_packages_are_refused(cache, requirement, reason):
    with pytest.raises(PackageInstallError) as caught:
        ensure_overlay((requirement,))
    assert reason in str(caught.value)
    assert os.listdir(cache) == ["lock"]


def test_local_sandboxes_require_installed_debian_packages(monkeypatch, tmp_path):
    check_installed_on_machine(())
    with pytest.raises(ConfigurationError, match=f"lacks {MISSING}: run 'apt install {MISSING}', or pass provider='docker'"):
        start_sandbox(SandboxConfig(provider="local", preload=(), system_packages=[MISSING]))
    if shutil.which("dpkg-query"):
        check_installed_on_machine(("dpkg", "bash"))
        with pytest.raises(ConfigurationError, match="lacks bash=0:"):
            check_installed_on_machine(("dpkg", "bash=0"))
    # Another distribution.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="lacks dpkg:"):
        check_installed_on_machine(("dpkg",))


def test_unwritable_cache_is_reported(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/x")
    with pytest.raises(SandboxStartError, match="XDG_CACHE_HOME"):
        ensure_overlay(("toolz",))


def test_concurrent_installs_run_once_and_remove_leftovers(cache, caplog):
    cache.mkdir(parents=True)
    (cache / ".half-made-x").mkdir()
    (cache / ".half-made-x" / "junk").touch()
    options = {"provider": "local", "preload": (), "packages": ["sample<2"], "screen": None}
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=2, sessions_per_sandbox=1, **options)) as envs:
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(ensure_overlay, [("sample<2",)] * 4)
            envs.reset(seed=1)
        observations, *_ = envs.step(("import sample; print(sample.version)",) * 2)
    assert observations["stdout"] == ("1.0\n", "1.0\n")
    [overlay] = set(found)
    assert len(installations(caplog)) == 1
    assert sorted(os.listdir(cache)) == sorted(["lock", overlay.name])


# Standalone server


def test_server_installs_packages_before_serving(tmp_path, wheels, monkeypatch):
    monkeypatch.setenv("ADDITIONAL_IMPORTS", "math,sample>=1,<2")
    with RunningServer(tmp_path, "--packages", "dataclasses,numpy") as server:
        code = "import sample, shutil; print(sample.version, bool(shutil.which('sample-program')))"
        answer = httpx.post(f"{server.url}/step", json={"action": {"code": code}}).json()
        assert answer["observation"]["stdout"] == "1.0 True\n"
        authorized = zygote_config(server.process.pid)["authorized_imports"]
        assert set(authorized) == {"dataclasses", "math", "numpy", "sample"}
        log = server.log.read_text()
    assert "installing sample<2,>=1\n" in log


@pytest.mark.parametrize(
    ("packages", "reason"),
    [(MISSING, f"No matching distribution found for {MISSING}"), ("sample,./x", "Expected the name of a package")],
)
def test_server_exits_when_installation_fails(tmp_path, wheels, packages, reason):
    command = [sys.executable, "-m", "coding_gym_server", "--workspaces", str(tmp_path / "ws"), "--packages", packages]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "ws" / "packages").exists()


# The docker provider


@pytest.fixture(scope="module")
def image(docker_engine):
    return ensure_image(docker_engine, None)


@pytest.fixture(scope="module")
def derived(docker_engine, image):
    """Function that derives images, which are removed at the end."""
    names = set()

    def derive(*requirements):
        name = ensure_packages(docker_engine, image, requirements)
        names.add(name)
        return name

    yield derive
    for name in names - {image}:
        with contextlib.suppress(ImageNotFound):
            docker_engine.images.remove(name)


def images_of(engine):
    return {tag for found in engine.images.list(name="coding-gym/sandbox") for tag in found.tags}


def containers_of(engine, pid):
    return [container for container, owner in our_containers(engine) if owner.pid == pid]


@pytest.mark.docker
def test_docker_pool_installs_packages_once(docker_engine, image, derived, caplog):
    # Remove the leftovers of a previous run that was killed.
    for name in images_of(docker_engine):
        if name.startswith(f"{image}-"):
            docker_engine.images.remove(name)
    options = {"provider": "docker", "preload": (), "packages": PACKAGES}
    with SandboxPool(2, **options) as pool:
        sandbox = pool.acquire().sandbox
        code = """
            import os, socket, toolz, yaml
            try:
                socket.create_connection(("127.0.0.1", 9))
            except OSError as error:
                print(os.getuid(), os.access(toolz.__file__, os.W_OK), type(error).__name__)
        """
        assert run(sandbox, code) == "10001 False ConnectionRefusedError"
        processes = [row[-1] for row in sandbox.container.top()["Processes"]]
    assert len(installations(caplog)) == 1
    zygote = next(process for process in processes if "coding_gym_server.zygote" in process)
    assert '"authorized_imports":["_yaml","dataclasses","math","tlz","toolz","yaml"]' in zygote.replace(", ", ",")
    assert sandbox.container.attrs["Config"]["Image"] == derived("toolz", "pyyaml")
    assert len(installations(caplog)) == 1


@pytest.mark.docker
def test_derived_image_keeps_base_configuration(docker_engine, image, derived):
    base, made = (docker_engine.images.get(name).attrs["Config"] for name in (image, derived("pyyaml", "toolz")))
    for key in ("User", "Entrypoint", "Cmd", "Env", "WorkingDir", "ExposedPorts", "Volumes", "StopSignal"):
        assert (made.get(key) or None) == (base.get(key) or None)
    # A manually started container has no owner process.
    assert not made["Labels"][LABEL_OWNER]


@pytest.mark.docker
def test_docker_unknown_package_fails_with_pip_error(docker_engine, image):
    running = set(containers_of(docker_engine, os.getpid()))
    with pytest.raises(PackageInstallError, match=f"No matching distribution found for {MISSING}") as caught:
        start_sandbox(SandboxConfig(provider="docker", preload=(), packages=[MISSING]))
    assert caught.value.requirements == (MISSING,)
    # Other tests may derive images concurrently.
    derived = derived_images._name(docker_engine.images.get(image), image, [MISSING], derived_images._PIP)
    assert derived.startswith(f"{image}-")
    assert derived not in images_of(docker_engine)
    assert set(containers_of(docker_engine, os.getpid())) == running


@pytest.mark.docker
def test_docker_installs_debian_packages(docker_engine, image, caplog):
    # Small ones: a compiler and GTK take a minute.
    options = {"provider": "docker", "preload": (), "system_packages": ["hello", "python3-toolz"]}
    name = ensure_system_packages(docker_engine, image, options["system_packages"])
    try:
        with contextlib.closing(start_sandbox(SandboxConfig(**options))) as sandbox:
            code = """
                import subprocess, toolz
                print(subprocess.run(["hello"], capture_output=True, text=True).stdout.strip(), toolz.__file__)
            """
            assert run(sandbox, code) == "Hello, world! /usr/lib/python3/dist-packages/toolz/__init__.py"
            assert sandbox.container.attrs["Config"]["Image"] == name
        assert len(installations(caplog)) == 1
        made, base = (docker_engine.images.get(one).attrs["Config"] for one in (name, image))
        assert (made["Entrypoint"], made["Env"], made["User"]) == (base["Entrypoint"], base["Env"], base["User"])
    finally:
        docker_engine.images.remove(name)


@pytest.mark.docker
def test_docker_unknown_debian_package_fails_with_reason(docker_engine, image):
    with pytest.raises(PackageInstallError, match=f"apt-get says:\\n.*Unable to locate package {MISSING}") as caught:
        ensure_system_packages(docker_engine, image, [MISSING])
    assert caught.value.requirements == (MISSING,)
    derived = derived_images._name(docker_engine.images.get(image), image, [MISSING], derived_images._APT)
    assert derived not in images_of(docker_engine)


@pytest.mark.docker
def test_requirements_replacing_server_packages_are_refused(docker_engine, image):
    with pytest.raises(PackageInstallError, match="constraint"):
        ensure_packages(docker_engine, image, ["msgspec<0.1"])


@pytest.mark.docker
def test_container_of_killed_build_is_swept(docker_engine, image):
    # No server listens at this address, but pip retries for a while.
    code = f"""
        from coding_gym.sandbox.docker.engine import (connect_to_engine,)
        from coding_gym.sandbox.docker.derived_images import ensure_packages
        ensure_packages(connect_to_engine(), {image!r}, ["x @ http://127.0.0.1:9/x-1.0-py3-none-any.whl"])
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL) as builder:
        left = eventually(lambda: containers_of(docker_engine, builder.pid))
        builder.send_signal(signal.SIGKILL)
    remove_orphans(docker_engine)
    assert left[0].name not in [container.name for container in docker_engine.containers.list(all=True, ignore_removed=True)]


@pytest.mark.docker
def test_manually_run_container_installs_packages(docker_engine, image):
    port = free_port()
    container = docker_engine.containers.run(
        image,
        detach=True,
        environment={"ADDITIONAL_IMPORTS": "math,humanize,yaml"},
        ports={"8000/tcp": ("127.0.0.1", port)},
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "", "/home/user": "exec,mode=1777", "/workspaces": "exec,mode=1777"},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        assert eventually(lambda: is_healthy(url), 60), container.logs().decode()
        code = "import humanize, yaml; print(yaml.__with_libyaml__, humanize.intcomma(12345))"
        answer = httpx.post(f"{url}/step", json={"action": {"code": code}}, timeout=20).json()
        assert answer["observation"]["stdout"] == "True 12,345\n", answer
        assert "installing humanize, pyyaml" in container.logs().decode()
    finally:
        container.remove(force=True, v=True)


@pytest.mark.docker
def test_manually_run_container_exits_on_unknown_package(docker_engine, image):
    container = docker_engine.containers.run(image, ["--packages", MISSING], detach=True)
    try:
        assert container.wait(timeout=60)["StatusCode"] == 1
        assert f"No matching distribution found for {MISSING}" in container.logs().decode()
    finally:
        container.remove(force=True, v=True)
