"""Images that are not based on the sandbox's: the server is mounted, and programs run as the engine runs those of the image."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
from unittest.mock import ANY

import gymnasium as gym
import pytest

from coding_gym import CodingEnv, SandboxConfig
from coding_gym.code_interpreter import CodeInterpreter
from coding_gym.errors import ConfigurationError, ImageBuildError, ProtocolError, SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.docker import dockerfiles, runtime
from coding_gym.tasks import TaskSuite, load_suite
from coding_gym_server.protocol import ResetOptions
from coding_gym_server.protocol.grading import Asserts, Submission, VerdictOutcome
from tests.support.built_images import removed_afterwards
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker

HOSTILE = r"""
FROM debian:trixie-slim
RUN useradd --uid 1500 --create-home agent && groupadd --gid 70 readers && usermod --append --groups readers agent \
    && install --directory --owner agent /testbed /var/data && echo given > /testbed/given && echo kept > /var/data/kept \
    && mkdir -p /tmp/inner /home/user /workspaces && echo here | tee /tmp/inner/given /home/user/given /workspaces/given \
    && chown -R agent /tmp/inner && ln -s given /tmp/inner/link && echo secret > /root/secret && chmod 600 /root/secret \
    && mv /home /var/home && ln -s /var/home /home \
    && echo /nowhere/preloaded.so > /etc/ld.so.preload && rmdir /opt && ln --symbolic /usr/local /opt && chmod 0700 /srv
ENV PYTHONHOME=/nowhere PYTHONPATH=/nowhere LD_LIBRARY_PATH=/nowhere PATH=/special:/usr/bin:/bin
ENV NAME="two words" PYTHONHASHSEED=7
WORKDIR /testbed
VOLUME /var/data
USER agent
HEALTHCHECK --interval=1s CMD false
ENTRYPOINT ["/bin/false"]
"""
SHOWN = (
    *("id", "pwd", "printenv | sort", "ls -a /", "ls -a $HOME", "cat /etc/passwd", "cat /*/given /tmp/*/given"),
    "stat -c '%A %U %G %n' /testbed/* /var/data /var/data/* /home /home/agent /home/user/* /root /srv /opt",
    "stat -c '%A %U %G %n' /tmp /tmp/* /tmp/*/* /usr/bin/*",
)


@pytest.fixture(scope="module")
def hostile(docker_engine):
    """Name of an image whose settings would keep the server from starting."""
    name = f"coding-gym-test/hostile:{os.getpid()}"
    docker_engine.images.build(fileobj=io.BytesIO(HOSTILE.encode()), tag=name, rm=True, forcerm=True)
    yield name
    docker_engine.images.remove(name, force=True)


@pytest.fixture(scope="module")
def empty(docker_engine):
    """Name of an image with a single file: no C library, no shell, no directories."""
    name = f"coding-gym-test/empty:{os.getpid()}"
    docker_engine.images.load(_image(docker_engine.version()["Arch"], name))
    yield name
    docker_engine.images.remove(name, force=True)


@pytest.fixture(scope="module")
def box(hostile):
    with lasting_sandbox(provider="docker", image=hostile, sessions=3) as box:
        yield box


@pytest.fixture
def session(box):
    with contextlib.closing(box.connect()) as session:
        yield session


def _image(architecture, name):
    """Return an image with a single file, in the format of ``docker load``."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, "given", b"given\n")
    config = {"architecture": architecture, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}
    config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}")
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "config.json", json.dumps(config).encode())
        _add(
            tar, "manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
        )
    return image.getvalue()


def _add(tar, name, content):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def run(session, code):
    session.ask_step(code)
    observation = session.wait(timeout=40).observation
    assert observation.stderr == ""
    return observation.stdout


def shell(session, command):
    session.ask_step(
        f"import subprocess; print(end=subprocess.run(['sh', '-c', {command!r}], capture_output=True, text=True).stdout)"
    )
    observation = session.wait(timeout=40).observation
    assert observation.exit_code == 0, observation
    return observation.stdout


def test_python_needs_nothing_of_the_image(empty):
    with contextlib.closing(gym.make("CodingEnv-v0", provider="docker", image=empty, screen=None)) as env:
        env.reset(seed=0)
        code = "import numpy, pandas, ssl, os; print(open('/given').read(), numpy.ones(4).sum(), os.getcwd(), os.getuid())"
        observation, *_, info = env.step(code)
        assert (observation["stdout"], info["outcome"]) == ("given\n 4.0 / 0\n", "ok")
        observation, *_ = env.step("import subprocess; subprocess.run(['sh'])")
        assert "No such file or directory: 'sh'" in observation["stderr"]
        env.step("open('/made', 'w').write('made'); os.remove('/given')")
        env.reset(seed=1)
        assert env.step("import os; print(os.path.exists('/made'), os.path.exists('/given'))")[0]["stdout"] == "False True\n"
    with (
        contextlib.closing(gym.make("CodingShellEnv-v0", provider="docker", image=empty)) as env,
        pytest.raises(ConfigurationError, match="an image with bash"),
    ):
        env.reset()


@pytest.mark.parametrize("command", SHOWN)
def test_programs_run_as_the_engine_runs_them(docker_engine, hostile, session, command):
    container = docker_engine.containers.create(
        hostile, ["-c", command], entrypoint="sh", hostname="sandbox", network_mode="none"
    )
    try:
        container.start()
        container.wait()
        expected = container.logs(stderr=False)
    finally:
        container.remove(force=True, v=True)
    found = set(shell(session, command).splitlines())
    differences = found ^ set(expected.decode().splitlines())
    assert differences <= {".coding-gym", ".workspaces"}


def test_program_beside_the_interpreter_runs_likewise(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None)) as env:
        env.reset(seed=0)
        result = env.exec("id; pwd; echo $NAME $PATH $PYTHONHASHSEED; cat /root/secret")
        assert result.stdout_text.splitlines() == [
            "uid=1500(agent) gid=1500(agent) groups=1500(agent),70(readers)",
            "/testbed",
            "two words /special:/usr/bin:/bin 7",
        ]
        assert "Permission denied" in result.stderr_text
        assert env.exec(["sleep", "100"], timeout=0.5).exit_code != 0


def test_program_runs_as_any_user(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None)) as env:
        env.reset(seed=0)
        assert env.exec("cat /root/secret; echo $HOME", user="root").stdout_text == "secret\n/root\n"
        assert env.exec("id -u; id -g; echo $HOME", user="1234:readers").stdout_text == "1234\n70\n/\n"
        assert env.exec("echo $HOME", user="root", env={"HOME": "/tmp"}).stdout_text == "/tmp\n"
        assert env.exec("/usr/sbin/useradd --create-home new", user="root").exit_code == 0
        assert env.exec("id -un; echo $HOME", user="new").stdout_text == "new\n/home/new\n"
        result = env.exec("true", user="nobody-here")
        assert (result.exit_code, result.stderr_text) == (
            126,
            "user nobody-here: the user 'nobody-here' is not in /etc/passwd\n",
        )


def test_cells_of_a_shell_run_likewise(hostile):
    with contextlib.closing(gym.make("CodingShellEnv-v0", provider="docker", image=hostile)) as env:
        env.reset(seed=0)
        assert env.step("cd /var/data; NAME=other; id -un")[0]["stdout"] == "agent\n"
        assert env.step("pwd; echo $NAME; cat kept")[0]["stdout"] == "/var/data\nother\nkept\n"


def test_changes_are_those_of_the_session_until_its_reset(box):
    change = "echo x | tee new /var/data/new /tmp/new $HOME/new; rm given; ls"
    look = "cat new /var/data/new /tmp/new $HOME/new 2>&1; cat given"
    with contextlib.closing(box.connect()) as session, contextlib.closing(box.connect()) as other:
        assert "new" in shell(session, change)
        assert shell(session, look).count("x") == 4
        assert shell(other, look).count("No such file") == 4
        session.ask_reset(ResetOptions(seed=1))
        session.wait(timeout=40)
        assert shell(session, look).splitlines()[-1] == "given"
        assert shell(session, look).count("No such file") == 4


def test_changes_are_limited(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None, disk="8m")) as env:
        env.reset(seed=0)
        assert "No space left" in env.exec("head -c 20000000 /dev/zero > big").stderr_text


def test_interpreter_is_interrupted_and_replaced(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None, step_timeout=1.0)) as env:
        env.reset(seed=0)
        env.step("x = 1")
        observation, *_, info = env.step("while True: pass")
        assert (info["outcome"], info["state_lost"]) == ("timeout", False), observation
        assert env.step("print(x)")[0]["stdout"] == "1\n"
        *_, info = env.step("import os; os.kill(os.getpid(), 9)")
        assert info["outcome"] == "killed"
        assert env.step("import os; print(os.getuid(), os.getcwd())")[0]["stdout"] == "1500 /testbed\n"


@pytest.fixture(scope="module")
def files_env(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None)) as env:
        yield env


def test_files_of_an_episode_are_in_the_working_directory(files_env):
    files_env.reset(seed=0, options={"files": {"a.txt": "a", "sub/b.txt": "b"}})
    code = "print(*(open(name).read() for name in ('given', 'a.txt', 'sub/b.txt')))"
    assert files_env.step(code)[0]["stdout"] == "given\n a b\n"
    assert files_env.exec("stat -c '%U %A %n' a.txt sub").stdout_text == "agent -rw-r--r-- a.txt\nagent drwxr-xr-x sub\n"
    files_env.reset(seed=0)
    assert [entry.name for entry in files_env.files.list()] == ["given"]


def test_files_are_those_that_programs_see(files_env, tmp_path):
    files_env.reset(seed=0)
    files = files_env.files
    script = "ln -s /etc/hostname link; ln -s /nowhere dangling; mkfifo pipe; mkdir -m 700 own; echo x > own/x; chmod 600 own/x"
    assert files_env.exec(script).exit_code == 0
    assert (files.read("given"), files.read("/testbed/given"), files.read("own/../own/x")) == (b"given\n", b"given\n", b"x\n")
    assert files.read("link") == files_env.exec("cat /etc/hostname").stdout
    assert files.read("/proc/cpuinfo").startswith(b"processor")
    assert files.read("/var/data/kept") == b"kept\n"
    # A link of the image.
    assert files.read("/home/user/given") == b"here\n"
    assert [(entry.name, entry.type, entry.is_link) for entry in files.list("/testbed")] == [
        *(("own", "dir", False), ("dangling", "file", True), ("given", "file", False)),
        *(("link", "file", True), ("pipe", "file", False)),
    ]
    assert {"bin", "testbed", "var"} <= {entry.name for entry in files.list("/")}
    files.write("/testbed/new/ä\n.txt", "new")
    files.write("given", b"other")
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    files.upload(tool, "tool")
    result = files_env.exec("./tool; cat given; stat -c '%U %n' new; rm pipe; ls -A")
    assert result.stdout_text == "tool\notheragent new\ndangling\ngiven\nlink\nnew\nown\ntool\n"
    assert files.download("/testbed", tmp_path / "copy") == {"/testbed/dangling": ANY}
    assert (tmp_path / "copy/own/x").read_text() == "x\n"
    files.remove("new")
    files.remove("/testbed/link")
    assert files_env.exec("ls; ls /etc/hostname").stdout_text == "dangling\ngiven\nown\ntool\n/etc/hostname\n"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda files: files.read("/root/secret"), "Permission denied: /root/secret"),
        (lambda files: files.list("/root"), "Permission denied: /root"),
        (lambda files: files.write("/etc/new", "x"), "Permission denied: /etc/new"),
        (lambda files: files.write("/var/data", "x"), "Is a directory: /var/data"),
        (lambda files: files.read("/etc"), "Is a directory: /etc"),
        (lambda files: files.read("/dev/zero"), "Not a file: /dev/zero"),
        (lambda files: files.list("given"), "Not a directory: /testbed/given"),
        (lambda files: files.remove("."), "is the working directory"),
        (lambda files: files.remove("/"), "is the workspace itself"),
        (lambda files: files.read("a\0b"), "outside"),
    ],
)
def test_files_that_programs_may_not_use(files_env, call, reason):
    files_env.reset(seed=0)
    with pytest.raises(ProtocolError, match=reason):
        call(files_env.files)
    with pytest.raises(FileNotFoundError):
        files_env.files.read("nowhere")
    assert files_env.files.read("given") == b"given\n"


TRACING = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
TRACEME, KILL, SEIZE = 0, 8, 0x4206
PRIVATE, MODE = 0, 0o600
print(all(call >= 0 for call in (libc.shmget(PRIVATE, 4096, MODE), libc.semget(PRIVATE, 1, MODE), libc.msgget(PRIVATE, MODE))))
child = os.fork()
if child == 0:
    libc.ptrace(TRACEME, 0, 0, 0)
    os.execv("/bin/true", ["true"])
print(os.WIFSTOPPED(os.waitpid(child, 0)[1]))
libc.ptrace(KILL, child, 0, 0)
os.waitpid(child, 0)
others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
print([pid for pid in others if libc.ptrace(SEIZE, pid, 0, 0) == 0])
"""


@pytest.mark.parametrize("image", ["hostile", "default with root"])
def test_programs_trace_each_other_and_nothing_of_the_sandbox(request, image):
    options = {"image": request.getfixturevalue("hostile")} if image == "hostile" else {"root": True}
    with contextlib.closing(CodingEnv(provider="docker", preload=(), screen=None, **options)) as env:
        env.reset(seed=0)
        # What opens it may still exist.
        env.files.read("/etc/hostname")
        assert env.step(TRACING)[0]["stdout"] == "True\nTrue\n[]\n"
        if "root" in options:
            assert env.exec(["python3", "-c", TRACING]).stdout_text == "True\nTrue\n[]\n"


def test_upload_that_does_not_fit_leaves_nothing(hostile):
    with contextlib.closing(CodingEnv(provider="docker", image=hostile, preload=(), screen=None, disk="16m")) as env:
        env.reset(seed=0)
        with pytest.raises(ProtocolError, match="No space left"):
            env.files.write("large", bytes(32 << 20))
        assert env.exec("ls -A").stdout_text == "given\n"
        env.files.write("small", bytes(1 << 20))


def test_files_of_root(docker_engine):
    with contextlib.closing(CodingEnv(provider="docker", root=True, preload=(), screen=None)) as env:
        env.reset(seed=0, options={"files": {"a.txt": "a"}})
        env.files.write("/etc/new", "new")
        assert env.exec("pwd; cat a.txt; cat /etc/new; stat -c %U a.txt").stdout_text == "/home/user\nanewroot\n"
        env.reset(seed=0)
        with pytest.raises(FileNotFoundError):
            env.files.read("/etc/new")


def test_submissions_are_graded(box):
    tests = Asserts(setup="", cases=("assert double(2) == 4",))
    with contextlib.closing(box.connect()) as session:
        graded = session.grade(Submission(code="def double(x): return 2 * x", tests=tests), timeout=60)
    assert graded.outcome == VerdictOutcome.PASSED, graded


def test_vector_and_tasks(hostile):
    options = {"provider": "docker", "image": hostile, "preload": (), "screen": None}
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=3, **options)) as envs:
        envs.reset(seed=0)
        assert envs.step(("import os; print(os.getuid())",) * 3)[0]["stdout"] == ("1500\n",) * 3
    task = load_suite("basics")["basics/bill"]
    with contextlib.closing(gym.make("CodingTask-v0", suite=TaskSuite("one", [task]), **options)) as env:
        env.reset(seed=0)
        _, reward, *_ = env.step(f"{task.reference}\n")
        assert env.unwrapped.submit(task.reference)[1] == 1 if reward != 1 else True


def test_server_uses_no_settings_of_the_image(box):
    assert b"preloaded.so" not in box.container.logs()


def test_engine_runs_no_health_checks(box):
    box.container.reload()
    assert "Health" not in box.container.attrs["State"]


def test_packages_are_refused(hostile):
    for option in ("packages", "system_packages"):
        with pytest.raises(ConfigurationError, match=f"{option}= cannot be installed into the image"):
            start_sandbox(SandboxConfig(provider="docker", image=hostile, **{option: ("toolz",)}))


def test_image_of_another_machine_is_refused(docker_engine):
    name = f"coding-gym-test/elsewhere:{os.getpid()}"
    docker_engine.images.load(_image("mips64le", name))
    try:
        with pytest.raises(SandboxStartError, match="is for mips64le, and the engine runs programs for"):
            start_sandbox(SandboxConfig(provider="docker", image=name))
    finally:
        docker_engine.images.remove(name, force=True)


def test_unknown_user_is_named(docker_engine, empty):
    name = f"coding-gym-test/unknown:{os.getpid()}"
    docker_engine.images.build(fileobj=io.BytesIO(f"FROM {empty}\nUSER nobody".encode()), tag=name, rm=True, forcerm=True)
    try:
        with pytest.raises(SandboxStartError, match="the user 'nobody' is not in /etc/passwd"):
            start_sandbox(SandboxConfig(provider="docker", image=name))
    finally:
        docker_engine.images.remove(name, force=True)


def test_interrupted_preparation_is_repeated(docker_engine, empty, monkeypatch):
    name = f"{runtime.RUNTIME_PREFIX}test-{os.getpid()}"
    monkeypatch.setattr(runtime, "runtime_name", lambda: name)
    docker_engine.volumes.create(name)
    try:
        box = start_sandbox(SandboxConfig(provider="docker", image=empty, preload=()))
        with contextlib.closing(box), contextlib.closing(box.connect()) as session:
            assert run(session, "print(1)") == "1\n"
    finally:
        for volume in docker_engine.volumes.list(filters={"name": name}):
            volume.remove(force=True)


@pytest.mark.parametrize("image", ["hostile", "default", "default with root"])
def test_mounted_directories_are_read_only(request, tmp_path, image):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/given").write_text("given")
    tmp_path.chmod(0o755)
    options = {"image": request.getfixturevalue("hostile")} if image == "hostile" else {"root": image == "default with root"}
    mounts = {"/datasets": str(tmp_path), "/mnt/deep/er": tmp_path / "inner"}
    with contextlib.closing(CodingEnv(provider="docker", preload=(), screen=None, mounts=mounts, **options)) as env:
        env.reset(seed=0)
        result = env.exec(
            "cat /datasets/inner/given /mnt/deep/er/given; touch /datasets/new /mnt/deep/er/new; rm -f /datasets/inner/given"
        )
        assert result.stdout_text == "givengiven"
        assert result.stderr_text.count("Read-only file system") == 3
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["given", "inner"]


@pytest.mark.parametrize(
    ("mounts", "reason"),
    [
        ({"/data": "/nonexistent"}, "a directory of this machine"),
        ({"/data": "relative/nonexistent"}, "a directory of this machine"),
        ({"data": "/tmp"}, "a path other than those of the sandbox"),
        ({"/": "/tmp"}, "a path other than those of the sandbox"),
        ({"/data/../etc": "/tmp"}, "a path other than those of the sandbox"),
        ({"/home": "/tmp"}, "a path other than those of the sandbox"),
        ({"/tmp/x": "/tmp"}, "a path other than those of the sandbox"),
        ({"/a\0b": "/tmp"}, "a path other than those of the sandbox"),
        (["/data"], "a mapping of paths"),
    ],
)
def test_invalid_mounts(mounts, reason):
    with pytest.raises(ConfigurationError, match=f"Expected mounts= to be {reason}"):
        SandboxConfig(provider="docker", mounts=mounts)


def test_directory_with_dockerfile(docker_engine, tmp_path, caplog):
    (tmp_path / "Dockerfile").write_text("FROM debian:trixie-slim\nCOPY . /data\nWORKDIR /data\n")
    (tmp_path / ".dockerignore").write_text("# comment\nignored\n")
    (tmp_path / "given.txt").write_text("first\n")

    def run():
        with contextlib.closing(CodingEnv(provider="docker", image=tmp_path, screen=None)) as env:
            env.reset(seed=0)
            container = docker_engine.containers.get(env.sandbox.container.id)
            return container.image.tags, env.exec("cat given.txt; ls").stdout_text

    with removed_afterwards(docker_engine, tmp_path):
        tags, output = run()
        assert output == "first\nDockerfile\ngiven.txt\n"
        # What is not in the image does not lead to another one.
        (tmp_path / "ignored").write_text("any")
        assert run()[0] == tags
        docker_engine.images.remove(dockerfiles.built_name(tmp_path), force=True)
        (tmp_path / "given.txt").write_text("second\n")
        others, output = run()
        assert output.startswith("second\n")
        assert set(others).isdisjoint(tags)
        assert sum("building the image of" in record.message for record in caplog.records) == 2
        docker_engine.images.remove(dockerfiles.built_name(tmp_path), force=True)
        (tmp_path / "Dockerfile").write_text("FROM debian:trixie-slim\nRUN echo why it fails; exit 3\n")
        with pytest.raises(ImageBuildError, match=f"The image of {tmp_path}/Dockerfile failed to build") as failure:
            run()
        assert "why it fails" in str(failure.value)


def test_directory_without_dockerfile(tmp_path):
    with pytest.raises(ConfigurationError, match="a directory with a Dockerfile; there is no"):
        start_sandbox(SandboxConfig(provider="docker", image=tmp_path))


def test_contexts_of_code_interpreter(hostile):
    with CodeInterpreter(provider="docker", image=hostile, preload=(), sessions=4) as interpreter:
        bash = interpreter.contexts.create(language="bash")
        first = interpreter.execute("id -un; pwd; command -v python3; cat given; echo made > made", context=bash)
        assert (first.stdout, bash.cwd) == ("agent\n/testbed\ngiven\n", "/testbed")
        python = interpreter.contexts.create()
        assert (
            interpreter.execute("import os; print(open('made').read(), os.getuid())", context=python).stdout == "made\n 1500\n"
        )
        # Only their files are common.
        assert interpreter.execute("sleep 1000 & kill -0 $!; ls /proc | grep -c '^[0-9]*$'", context=bash).stdout < "9"
        assert interpreter.execute("1 + 1").text == "2"
        interpreter.files.write("uploaded.txt", b"uploaded")
        assert (
            interpreter.execute("cat /testbed/uploaded.txt; stat -c %U uploaded.txt", context=bash).stdout == "uploadedagent\n"
        )
        assert interpreter.files.read("made") == b"made\n"
