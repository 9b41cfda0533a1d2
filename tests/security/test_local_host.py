"""Isolation of the user's machine by the local provider, although the code runs as the same user."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.local import provider as local
from coding_gym_server.isolation.probe import probe
from tests.security.attack import REFUSED, Inside

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="requires directories that belong to root")


@pytest.fixture(scope="module", params=["namespaces", "bare"])
def kind(request):
    if request.param == "bare" and (os.geteuid() != 0 or shutil.which("setpriv") is None):
        pytest.skip("disabling namespaces requires root and setpriv")
    return request.param


@pytest.fixture(scope="module")
def box(kind):
    with pytest.MonkeyPatch.context() as patch:
        if kind == "bare":
            start = subprocess.Popen
            without = ["setpriv", "--bounding-set=-sys_admin"]
            patch.setattr(local.subprocess, "Popen", lambda command, **options: start([*without, *command], **options))
        sandbox = start_sandbox(SandboxConfig(provider="local", preload=(), sessions=4))
    with contextlib.closing(sandbox):
        yield sandbox


@pytest.fixture(scope="module")
def inside(box):
    with contextlib.closing(Inside(box)) as inside:
        yield inside


@pytest.fixture
def treasure(tmp_path, kind):
    """User file that everyone may read and write."""
    path = tmp_path / "treasure"
    path.write_text("treasure")
    for directory in (tmp_path, tmp_path.parent):
        directory.chmod(0o777)
    path.chmod(0o666)
    os.utime(path, (1000, 1000))
    yield path
    assert path.read_text() == "treasure"
    assert path.stat().st_mtime == 1000
    assert path.stat().st_mode & 0o777 == 0o666
    assert [entry.name for entry in tmp_path.iterdir()] == ["treasure"]


@pytest.mark.parametrize(
    "action",
    [
        "open({})",
        "open({}, 'w')",
        "os.truncate({}, 0)",
        "os.unlink({})",
        "os.rename({}, {} + '2')",
        "os.link({}, 'own')",
        "os.chmod({}, 0)",
        "os.chmod(os.path.dirname({}), 0)",
        "os.utime({}, (5, 5))",
        "os.chown({}, 12345, -1)",
        "os.setxattr({}, 'user.x', b'')",
        "os.symlink('/', {} + '2')",
        "os.mkdir({} + '2')",
        "os.listdir(os.path.dirname({}))",
        "(os.symlink({}, 'own'), open('own'))",
        "open('/proc/self/root' + {})",
        "open('/proc/1/root' + {})",
        "call('mount', {}.encode(), b'/tmp', 0, 4096, 0)",
        "subprocess.run(['cp', {}, '.'], check=True) if attempt(lambda: open({})) == 'done' else open({})",
    ],
)
def test_user_files_are_inaccessible(inside, treasure, action):
    assert inside.attempt(action.replace("{}", repr(str(treasure)))) in {*REFUSED, "ENOENT", "EXDEV", "EEXIST"}


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssl/private",
        "/root/.ssh/id_rsa",
        "/root/.bash_history",
        "/home",
        "/var/lib/docker",
        "/var/log",
        "/boot",
        "/proc/kcore",
        "/proc/1/environ",
        "/proc/1/cwd",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/loop0",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/console",
        "/dev/input",
        "/dev/snd",
        "/dev/dri",
    ],
)
def test_machine_secrets_are_not_readable(inside, path):
    assert inside.attempt(f"os.open({path!r}, os.O_RDONLY)") in {*REFUSED, "ENOENT"}


def test_public_configuration_is_readable(inside):
    for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache"):
        if os.path.exists(path):
            assert inside.attempt(f"open({path!r})") == "done"


@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp", "~", "/run", "/dev/shm"])
def test_user_unix_sockets_are_unreachable(inside, kind, directory):
    """A connection to the socket of tmux, an engine or an X server could run commands or read keystrokes."""
    if kind == "bare":
        pytest.skip("without namespaces, the sockets are reachable, as the log reports")
    path = Path(directory).expanduser() / f"coding-gym-test-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        try:
            listener.listen()
            assert inside.attempt(f"socket.socket(socket.AF_UNIX).connect({str(path)!r})") in {"ENOENT", "EACCES"}
        finally:
            path.unlink()


@pytest.mark.parametrize(
    "action",
    [
        "open({}, 'a')",
        "os.chmod({}, os.stat({}).st_mode & 0o7777)",
        "os.utime({}, ns=(os.stat({}).st_atime_ns, os.stat({}).st_mtime_ns))",
        "os.setxattr({}, 'user.x', b'')",
        "fcntl.fcntl(open({}), 1024, fcntl.F_RDLCK)",
        "fcntl.fcntl(open({}), 1024, fcntl.F_WRLCK)",
        "fcntl.ioctl(open({}), 0x40086602, fcntl.ioctl(open({}), 0x80086601, bytes(8)))",
        "fcntl.ioctl(open({}), 0x40806685, bytes(128))",
        "call('fchmod', os.open({}, os.O_RDONLY), os.stat({}).st_mode & 0o7777)",
        "call('utimensat', os.open({}, os.O_RDONLY), 0, struct.pack('qqqq', 0, 0x3FFFFFFE, 0, 0x3FFFFFFF), 0)",
        "call('fchmodat2', -100, {}.encode(), os.stat({}).st_mode & 0o7777, 0)",
        "call('file_setattr', -100, {}.encode(), bytes(24), 24, 0)",
    ],
)
@pytest.mark.parametrize("path", ["sys.executable", "os.__file__", "sys.modules['coding_gym_server'].__file__"])
def test_user_python_installation_cannot_be_changed(inside, action, path):
    modes = {name: os.stat(name).st_mode for name in (sys.executable, os.__file__)}
    # For unsupported operations, such as fs-verity on this file system, the kernel reports other errors.
    assert inside.attempt(action.replace("{}", path)) in {*REFUSED, "ENOTTY", "ENOTSUP", "ETXTBSY"}
    assert {name: os.stat(name).st_mode for name in modes} == modes


@ROOT
@pytest.mark.parametrize("path", ["os.path.dirname(os.path.dirname(os.getcwd()))", "'/dev/shm'", "'/tmp'", "'/'"])
def test_shared_directory_permissions_cannot_be_changed(box, inside, path):
    is_own = box.health()["isolation"]["session_mounts"] and path in ("'/dev/shm'", "'/tmp'")
    expected = {"done"} if is_own else REFUSED
    assert inside.attempt(f"os.chmod({path}, os.stat({path}).st_mode & 0o7777)") in expected
    assert inside.attempt("open('still', 'w')") == "done"


def test_user_processes_are_inaccessible(inside):
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            for number in (2, 9, 15, 19):
                assert inside.attempt(f"os.kill({process.pid}, {number})") == "EPERM"
            assert inside.attempt(f"os.setpriority(os.PRIO_PROCESS, {process.pid}, 19)") == "EPERM"
            assert inside.attempt(f"resource.prlimit({process.pid}, resource.RLIMIT_CPU, (1, 1))") == "EPERM"
            for pid in (process.pid, os.getpid(), 1):
                for number in (0, 18):
                    assert inside.attempt(f"os.kill({pid}, {number})") in {"EPERM", "ESRCH"}
                for name in ("environ", "mem", "maps", "cwd", "root", "fd/0"):
                    assert inside.attempt(f"os.open('/proc/{pid}/{name}', os.O_RDONLY)") in {*REFUSED, "ENOENT", "ENXIO"}
                assert inside.attempt(f"call('ptrace', 16, {pid}, 0, 0)") == "EPERM"
            assert process.poll() is None
            assert psutil.Process(process.pid).nice() == 0
        finally:
            process.kill()


@pytest.mark.parametrize("host", ["127.0.0.1", "172.17.0.1"])
@pytest.mark.parametrize("kind_of_socket", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW"])
def test_network_sockets_are_refused(inside, kind_of_socket, host):
    assert inside.attempt(f"socket.socket(socket.AF_INET, socket.{kind_of_socket}).connect(({host!r}, 9))") == "EACCES"


@pytest.mark.parametrize(
    "path",
    ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/dev/pts/0"],
)
def test_kernel_settings_are_not_writable(inside, path):
    assert inside.attempt(f"os.open({path!r}, os.O_WRONLY)") in {*REFUSED, "ENOENT"}


@pytest.mark.slow
@pytest.mark.parametrize("missing", [{"landlock_abi": 0}, {"landlock_abi": 5}, {"seccomp": False}], ids=str)
def test_kernel_without_isolation_is_refused(monkeypatch, missing):
    monkeypatch.setattr(local, "probe", lambda: msgspec.structs.replace(probe(), **missing))
    with pytest.raises(ProviderUnavailableError, match=r"Landlock|seccomp"):
        start_sandbox(SandboxConfig(provider="local", preload=()))
    config = SandboxConfig(provider="local", preload=(), isolation="prefer")
    with contextlib.closing(start_sandbox(config)) as sandbox, contextlib.closing(Inside(sandbox)) as inside:
        assert inside.see("6 * 7") == 42
