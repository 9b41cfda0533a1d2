"""Isolation of the user's machine by the local provider, although the code runs as the same user."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from coding_gym.errors import SandboxStartError
from coding_gym.sandbox import process_tree, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.security.attack import Inside, unrefused

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="requires root")


@pytest.fixture(scope="module")
def box(sandbox_of):
    return sandbox_of(provider="local")


@pytest.fixture(scope="module")
def inside(box):
    with contextlib.closing(Inside(box)) as inside:
        yield inside


@pytest.fixture
def treasure(tmp_path):
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


def test_user_files_are_inaccessible(inside, treasure):
    actions = [
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
    ]
    found = inside.attempts({action: action.replace("{}", repr(str(treasure))) for action in actions})
    assert unrefused(found, "ENOENT", "EXDEV", "EEXIST") == {}


@ROOT
@pytest.mark.parametrize("top", ["/opt", "/usr/local"])
def test_services_of_the_machine_are_unreachable(top):
    directory = Path(tempfile.mkdtemp(prefix="coding-gym-test-", dir=top))
    try:
        directory.chmod(0o777)
        names = {kind: str(directory / kind) for kind in ("socket", "datagrams", "fifo", "file")}
        with socket.socket(socket.AF_UNIX) as service, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            service.bind(names["socket"])
            service.listen()
            datagrams.bind(names["datagrams"])
            os.mkfifo(names["fifo"])
            Path(names["file"]).write_text("file")
            for path in names.values():
                os.chmod(path, 0o777)
            reader = os.open(names["fifo"], os.O_RDONLY | os.O_NONBLOCK)
            config = SandboxConfig(provider="local", preload=())
            with contextlib.closing(start_sandbox(config)) as box, contextlib.closing(Inside(box)) as inside:
                found = inside.attempts(
                    {
                        "socket": f"socket.socket(socket.AF_UNIX).connect({names['socket']!r})",
                        "datagrams": f"socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'', {names['datagrams']!r})",
                        "fifo": f"os.open({names['fifo']!r}, os.O_WRONLY | os.O_NONBLOCK)",
                        "file": f"open({names['file']!r}).read()",
                    }
                )
            os.close(reader)
    finally:
        shutil.rmtree(directory)
    # Landlock's error, and that of a FIFO that nobody reads.
    assert found.pop("fifo") in ("EACCES", "ENXIO")
    assert found == {"socket": "ECONNREFUSED", "datagrams": "ECONNREFUSED", "file": "done"}


def test_machine_secrets_are_not_readable(inside):
    paths = [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssl/private",
        "/root/.ssh/id_rsa",
        "/root/.bash_history",
        "/var/lib/docker",
        "/var/log",
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
    ]
    found = inside.attempts({path: f"os.open({path!r}, os.O_RDONLY)" for path in paths})
    assert unrefused(found, "ENOENT") == {}


def test_public_configuration_is_readable(inside):
    paths = [path for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache") if os.path.exists(path)]
    assert inside.attempts({path: f"open({path!r})" for path in paths}) == dict.fromkeys(paths, "done")


def test_user_unix_sockets_are_unreachable(inside):
    """A connection to the socket of tmux, an engine or an X server could run commands or read keystrokes."""
    with contextlib.ExitStack() as stack:
        paths = []
        for directory in ("/tmp", "/var/tmp", "~", "/run", "/dev/shm"):
            path = Path(directory).expanduser() / f"coding-gym-test-{os.getpid()}.sock"
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            stack.callback(path.unlink)
            listener.listen()
            paths.append(str(path))
        found = inside.attempts({path: f"socket.socket(socket.AF_UNIX).connect({path!r})" for path in paths})
    assert {path: result for path, result in found.items() if result not in ("ENOENT", "EACCES")} == {}


def test_user_python_installation_cannot_be_changed(inside):
    actions = [
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
    ]
    paths = ("sys.executable", "os.__file__", "sys.modules['coding_gym_server'].__file__")
    modes = {name: os.stat(name).st_mode for name in (sys.executable, os.__file__)}
    found = inside.attempts([action.replace("{}", path) for action in actions for path in paths])
    # For unsupported operations, such as fs-verity on this file system, the kernel reports other errors.
    assert unrefused(found, "ENOTTY", "ENOTSUP", "ETXTBSY") == {}
    assert {name: os.stat(name).st_mode for name in modes} == modes


@ROOT
def test_shared_directory_permissions_cannot_be_changed(box, inside):
    own = ("'/dev/shm'", "'/tmp'") if box.health()["isolation"]["session_mounts"] else ()
    paths = ("os.path.dirname(os.path.dirname(os.getcwd()))", "'/dev/shm'", "'/tmp'", "'/'")
    found = inside.attempts({path: f"os.chmod({path}, os.stat({path}).st_mode & 0o7777)" for path in paths})
    assert unrefused(found) == dict.fromkeys(own, "done")
    assert inside.attempt("open('still', 'w')") == "done"


def test_user_processes_are_inaccessible(inside):
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            pids = (process.pid, os.getpid(), 1)
            changes = [
                *(f"os.kill({process.pid}, {number})" for number in (2, 9, 15, 19)),
                f"os.setpriority(os.PRIO_PROCESS, {process.pid}, 19)",
                f"resource.prlimit({process.pid}, resource.RLIMIT_CPU, (1, 1))",
                *(f"call('ptrace', 16, {pid}, 0, 0)" for pid in pids),
            ]
            assert unrefused(inside.attempts(changes), "ESRCH") == {}
            signals = inside.attempts([f"os.kill({pid}, {number})" for pid in pids for number in (0, 18)])
            assert {signal: result for signal, result in signals.items() if result not in ("EPERM", "ESRCH")} == {}
            names = ("environ", "mem", "maps", "cwd", "root", "fd/0")
            files = inside.attempts([f"os.open('/proc/{pid}/{name}', os.O_RDONLY)" for pid in pids for name in names])
            assert unrefused(files, "ENOENT", "ENXIO") == {}
            assert process.poll() is None
            assert psutil.Process(process.pid).nice() == os.nice(0)
        finally:
            process.kill()


def test_sockets_of_the_machine_are_unreachable(inside):
    with contextlib.ExitStack() as stack:
        names = {}
        for family, address in ((socket.AF_INET, ("0.0.0.0", 0)), (socket.AF_UNIX, f"\0coding-gym-test-{os.getpid()}")):
            listener = stack.enter_context(socket.socket(family))
            listener.bind(address)
            listener.listen()
            names[family] = listener.getsockname()
        port = names[socket.AF_INET][1]
        attacks = [
            *(f"socket.create_connection(({host!r}, {port}), 5)" for host in ("127.0.0.1", "::1", "172.17.0.1")),
            f"socket.socket(socket.AF_UNIX).connect({names[socket.AF_UNIX]!r})",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        ]
        found = inside.attempts(attacks)
    assert unrefused(found, "ECONNREFUSED", "ENETUNREACH") == {}


def test_kernel_settings_are_not_writable(inside):
    paths = (
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/pts/0",
    )
    found = inside.attempts({path: f"os.open({path!r}, os.O_WRONLY)" for path in paths})
    assert unrefused(found, "ENOENT") == {}


@ROOT
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="disabling namespaces requires setpriv")
def test_machine_without_namespaces_is_refused(monkeypatch):
    start = subprocess.Popen
    without = ["setpriv", "--bounding-set=-sys_admin"]
    monkeypatch.setattr(process_tree.subprocess, "Popen", lambda command, **options: start([*without, *command], **options))
    with pytest.raises(SandboxStartError, match="requires namespaces, which this machine refuses"):
        start_sandbox(SandboxConfig(provider="local", preload=()))
