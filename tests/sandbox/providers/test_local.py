from __future__ import annotations

import ast
import contextlib
import logging
import os
import subprocess
import textwrap
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from coding_gym.errors import ProviderUnavailableError, SandboxStartError, TransportError
from coding_gym.sandbox import ManagedSandbox, process_tree, start_sandbox
from coding_gym.sandbox import ownership as owner
from coding_gym.sandbox import start as choice
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.provider import DockerSandbox
from coding_gym.sandbox.local import provider as local
from coding_gym.sandbox.local.provider import start_local
from coding_gym.sandbox.process_tree import ProcessTree
from coding_gym_server.isolation.probe import probe
from coding_gym_server.isolation.profile import python_directories
from coding_gym_server.protocol import ServerConfig
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import processes_of, server_of
from tests.support.timing import promptly

FAST = {"provider": "local", "preload": ()}


@pytest.fixture(scope="module")
def sandbox():
    with lasting_sandbox(**FAST, mem="512m", disk="8m", inodes=5000, pids_limit=200, sessions=4) as sandbox:
        yield sandbox


@pytest.fixture
def run(sandbox):
    with contextlib.closing(sandbox.connect()) as session:

        def run(code):
            session.ask_step(textwrap.dedent(code))
            return session.wait(timeout=30).observation

        yield run


def printed(observation):
    assert observation.stderr == ""
    return observation.stdout.strip()


ATTEMPT = """
    def attempt(action):
        try:
            action()
        except OSError as error:
            return type(error).__name__
        return "done"
"""


# Requirements, provider selection and failed starts


def test_kernel_without_filters_is_refused(monkeypatch):
    monkeypatch.setattr(process_tree, "probe", lambda: msgspec.structs.replace(probe(), seccomp=False))
    with pytest.raises(ProviderUnavailableError, match="seccomp") as caught:
        start_local(SandboxConfig(**FAST))
    assert caught.value.provider == "local"
    assert "Docker" in caught.value.reason


def test_auto_reports_why_both_providers_fail(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    monkeypatch.setattr(process_tree, "probe", lambda: msgspec.structs.replace(probe(), seccomp=False))
    with pytest.raises(ProviderUnavailableError, match=r"docker.*nonexistent.*local.*seccomp"):
        start_sandbox(SandboxConfig(provider="auto"))


def test_auto_falls_back_to_local_with_warning(monkeypatch, caplog):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    with caplog.at_level(logging.INFO, "coding_gym"):
        sandbox = start_sandbox(SandboxConfig(provider="auto", preload=()))
    with contextlib.closing(sandbox):
        assert isinstance(sandbox, ProcessTree)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "nonexistent" in record.getMessage()
        assert sandbox.description in record.getMessage()
        assert "\n" not in record.getMessage()


@pytest.mark.docker
def test_auto_prefers_docker_and_logs_choice(docker_engine, caplog):
    with caplog.at_level(logging.INFO, "coding_gym"):
        sandbox = start_sandbox(SandboxConfig(provider="auto", preload=()))
    with contextlib.closing(sandbox):
        assert isinstance(sandbox, DockerSandbox)
        assert any(sandbox.description in record.getMessage() for record in caplog.records if record.levelno == logging.INFO)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_failed_server_start_shows_log(monkeypatch):
    monkeypatch.setattr(local, "server_config", lambda _: ServerConfig(step_timeout="soon"))
    with pytest.raises(SandboxStartError, match="step_timeout: expected float, got str"):
        start_local(SandboxConfig(**FAST))


def test_server_exceeding_start_timeout_is_killed():
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(SandboxStartError, match="start_timeout"):
        start_local(SandboxConfig(**FAST, start_timeout=0.01))
    assert gone_within([child for child in psutil.Process().children() if child.pid not in before]) == []


# Isolation of code in the sandbox


def test_files_outside_cannot_be_read(run, tmp_path):
    secret = tmp_path / ".ssh" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text("secret")
    os.chmod(tmp_path, 0o777)
    code = (
        ATTEMPT
        + f"""
    import os
    print(attempt(lambda: open({str(secret)!r}).read()), attempt(lambda: os.listdir({str(tmp_path)!r})))
    os.symlink({str(secret)!r}, "link")
    print(attempt(lambda: open("link").read()), attempt(lambda: os.link({str(secret)!r}, "hard")))
    """
    )
    assert printed(run(code)).split() == ["FileNotFoundError"] * 4


@pytest.mark.parametrize("path", ["~", "/root", "/home", "/tmp", "/var", "/run", "/work", "/dev/shm", "/"])
def test_directories_outside_cannot_be_listed(run, path):
    path = os.path.expanduser(path)
    if not os.path.isdir(path):
        pytest.skip(f"there is no {path}")
    if path not in ("/tmp", "/dev/shm", "/"):
        shown = ast.literal_eval(printed(run(f"import os; print(os.listdir({path!r}))")))
        below = [Path(directory) for directory in python_directories() if Path(directory).is_relative_to(path)]
        to_python = {directory.relative_to(path).parts[0] for directory in below if directory != Path(path)}
        assert {*shown} <= to_python | {"covered", "beside", "empty", "workspaces", "user", "tmp", "cache"}
    elif path == "/":
        assert printed(run("import os; print([name for name in os.listdir('/') if os.path.isfile('/' + name)])")) == "[]"
    else:
        # What starts with a dot belongs to the screen, and links lead to Python.
        entries = f"[entry for entry in os.scandir({path!r}) if entry.name[0] != '.' and not entry.is_symlink()]"
        assert printed(run(f"import os; print({entries})")) == "[]"


def test_files_outside_cannot_be_changed(run, tmp_path):
    victim = tmp_path / "file"
    victim.write_text("as it was")
    os.chmod(tmp_path, 0o777)
    os.chmod(victim, 0o666)
    code = (
        ATTEMPT
        + f"""
    import os
    victim, new = {str(victim)!r}, {str(tmp_path / "new")!r}
    for action in (
        lambda: open(victim, "w"), lambda: open(victim, "a"), lambda: os.truncate(victim, 0), lambda: os.unlink(victim),
        lambda: os.rename(victim, new), lambda: open(new, "w"), lambda: os.mkdir(new), lambda: os.symlink("/", new),
        lambda: os.mkfifo(new), lambda: open("/etc/new", "w"), lambda: open("/usr/new", "w"), lambda: open("/tmp/new", "w"),
        lambda: open("/dev/shm/../new", "w"), lambda: os.rename(".", new), lambda: os.link("/etc/passwd", "passwd"),
    ):
        print(attempt(action))
    """
    )
    results = printed(run(code)).split()
    # The file /tmp/new is in the session's own directory.
    assert results.count("done") == 1, results
    assert not os.path.exists("/tmp/new")
    assert victim.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_workspace_is_writable(run):
    code = """
        import os, tempfile
        open("a", "w").write("x")
        os.mkdir("d"); os.rename("a", "d/b"); os.symlink("b", "d/c"); os.link("d/b", "d/e"); os.mkfifo("f")
        print(open("d/c").read(), len(os.listdir("d")), os.path.isdir(os.environ["HOME"]))
        with tempfile.TemporaryDirectory() as directory:
            open(os.path.join(directory, "x"), "w").close()
        print(tempfile.gettempdir() == os.environ["TMPDIR"])
    """
    assert printed(run(code)) == "x 3 True\nTrue"


def test_other_sessions_are_inaccessible(sandbox, run):
    where = printed(run("import os; print(os.getcwd()); open('mine', 'w').close()"))
    with contextlib.closing(sandbox.connect()) as other:
        for code, error in (
            (f"import os; os.listdir({where!r}).index('mine')", "ValueError"),
            (f"open({where!r} + '/mine')", "FileNotFoundError"),
        ):
            other.ask_step(code)
            assert error in other.wait(timeout=30).observation.stderr


@pytest.mark.parametrize("name", ["docker", "docker/containerd/containerd"])
def test_engine_socket_is_unreachable(run, name):
    code = (
        ATTEMPT
        + f"""
    import socket
    print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/{name}.sock")))
    """
    )
    assert printed(run(code)) != "done"


def test_foreign_abstract_sockets_are_unreachable(run):
    import socket

    name = f"\0coding-gym-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        code = ATTEMPT + f"    import socket; print(attempt(lambda: socket.socket(socket.AF_UNIX).connect({name!r})))"
        # ConnectionRefusedError if a separate network namespace, and thus separate abstract names, are available.
        assert printed(run(code)) in ("PermissionError", "ConnectionRefusedError")


def test_processes_outside_cannot_be_signalled(sandbox, run):
    code = (
        ATTEMPT
        + f"""
    import os
    for pid in (os.getppid(), {server_of(sandbox).pid}, {os.getpid()}, 1):
        print(attempt(lambda: os.kill(pid, 0)), attempt(lambda: os.kill(pid, 15)))
    print(attempt(lambda: os.kill(os.getpid(), 0)))
    """
    )
    assert {*printed(run(code)).split()[:-1]} <= {"PermissionError", "ProcessLookupError"}
    assert psutil.pid_exists(server_of(sandbox).pid)


def test_server_process_cannot_be_traced_or_read(sandbox, run):
    pid = server_of(sandbox).pid
    code = (
        ATTEMPT
        + f"""
    import ctypes, os
    for name in ("environ", "mem", "maps", "fd/0", "cwd/x", "root/etc/shadow"):
        for pid in ({pid}, os.getppid()):
            path = f"/proc/{{pid}}/{{name}}"
            print(attempt(lambda: os.readlink(path) if name == "fd/0" else open(path, "rb").read(1)))
    print("done" if ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0 else "PermissionError")
    """
    )
    assert "done" not in printed(run(code)).split()


def test_server_socket_and_token_are_unreachable(sandbox, run):
    directory = os.path.dirname(str(sandbox.address))
    assert sorted(os.listdir(directory)) == ["server.sock", "server.sock.listeners"]
    code = (
        ATTEMPT
        + f"""
    import os, socket
    print(attempt(lambda: os.listdir({directory!r})), attempt(lambda: open({directory!r} + "/token")))
    """
    )
    assert "done" not in printed(run(code)).split()
    assert sandbox.address.token not in printed(run("import os; print(dict(os.environ), open('/proc/self/cmdline').read())"))


def test_environment_variables_of_trainer_stay_hidden(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with contextlib.closing(start_sandbox(SandboxConfig(**FAST))) as sandbox, contextlib.closing(sandbox.connect()) as session:
        session.ask_step("import os; print(sorted(os.environ), 'hush' in str(os.environ))")
        stdout = session.wait(timeout=30).observation.stdout
    assert "False" in stdout
    assert "AWS" not in stdout
    assert psutil.Process().environ().get("AWS_SECRET_ACCESS_KEY") is None


def test_code_runs_without_capabilities(run):
    status = printed(run("print(open('/proc/self/status').read())"))
    found = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNewPrivs")))
    assert found == {
        "CapInh": "0" * 16,
        "CapPrm": "0" * 16,
        "CapEff": "0" * 16,
        "CapBnd": "0" * 16 if os.geteuid() == 0 else found["CapBnd"],
        "CapAmb": "0" * 16,
        "NoNewPrivs": "1",
    }


def test_setuid_program_gains_nothing(run):
    code = """
        import subprocess
        print(subprocess.run("grep CapEff /proc/self/status; unshare -Ur id; mount -t tmpfs x /mnt", shell=True,
                             capture_output=True, text=True).stdout)
    """
    assert printed(run(code)).split() == ["CapEff:", "0" * 16] or "uid=0" not in printed(run(code))


def test_too_much_memory_is_an_observation(run):
    observation = run("x = 'kept'; data = bytearray(1 << 30)")
    assert observation.exit_code in (1, 137)
    assert "MemoryError" in observation.stderr or "out of memory" in observation.stderr
    assert printed(run("x")) == "'kept'"


def test_number_of_files_in_shared_memory_is_configured(sandbox, run):
    if not sandbox.health()["isolation"]["own_namespaces"]:
        pytest.skip("without namespaces, /dev/shm is the host's")
    assert printed(run("print(__import__('os').statvfs('/dev/shm').f_files)")) == "5000"


def test_oversized_file_is_an_observation(run):
    observation = run("with open('large', 'wb') as f:\n    for _ in range(20): f.write(bytes(1 << 20))")
    assert observation.exit_code == 1
    assert "File too large" in observation.stderr or "No space left" in observation.stderr
    run("import os; os.unlink('large')")
    assert printed(run("1")) == "1"


# Lifecycle


def test_closing_removes_everything(tmp_path):
    sandbox = start_sandbox(SandboxConfig(**FAST, sessions=2))
    directory = os.path.dirname(os.path.dirname(str(sandbox.address)))
    with contextlib.closing(sandbox.connect()) as session:
        session.ask_step(
            "import subprocess, os; p = subprocess.Popen(['sleep', '300'], start_new_session=True); os.mkdir('d', 0)"
        )
        session.wait(timeout=30)
        session.ask_step("import time; time.sleep(60)")
        time.sleep(0.2)
        family = processes_of(sandbox)
        with promptly():
            sandbox.close()
        assert gone_within(family) == []
        assert not os.path.exists(directory)
        with pytest.raises(TransportError):
            session.wait(timeout=30)
    sandbox.close()
    with pytest.raises(TransportError):
        sandbox.connect()


def test_idle_server_ends_after_timeout():
    with contextlib.closing(start_sandbox(SandboxConfig(**FAST, idle_timeout=0.5))) as sandbox:
        server = server_of(sandbox)
        family = processes_of(sandbox)
        with contextlib.closing(sandbox.connect()):
            time.sleep(1)
            assert server.is_running()
        assert gone_within(family) == []


def test_directory_of_dead_owner_is_swept():
    with subprocess.Popen(["true"]) as process:
        dead = owner.OwnerProcess(owner.OwnerProcess.current().host, process.pid, 1)
    base = owner._runtime_base()
    orphan, strange = base / "orphan", base / "not-a-sandbox"
    for directory in (orphan, strange):
        directory.mkdir(parents=True, exist_ok=True)
    (orphan / "owner").write_text(str(dead))
    try:
        start_local(SandboxConfig(**FAST)).close()
        assert not orphan.exists()
        assert strange.exists()
    finally:
        strange.rmdir()


def test_runtime_directory_is_private(sandbox):
    directory = os.path.dirname(os.path.dirname(str(sandbox.address)))
    assert os.stat(directory).st_mode & 0o077 == 0


def test_foreign_runtime_directory_is_refused(monkeypatch, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can create a directory of another user")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    planted = tmp_path / f"coding-gym-{os.getuid()}"
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    os.chown(planted, 12345, 12345)
    with pytest.raises((SandboxStartError, ProviderUnavailableError, OSError)):
        start_local(SandboxConfig(**FAST)).close()


def test_closed_slot_raises():
    slot = ManagedSandbox(SandboxConfig(**FAST))
    slot.close()
    with pytest.raises(SandboxStartError, match="closed"):
        slot.connect()


def test_base_url_selects_remote_provider():
    with pytest.raises(SandboxStartError, match="127"):
        choice.start_sandbox(SandboxConfig(base_url="http://127.0.0.1:9", start_timeout=0.1))
