"""Root of a session: what it may do to the session's own system, and what neither it nor its users may do beyond."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psutil
import pytest

from coding_gym.errors import ProtocolError
from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol import Outcome
from tests.security.attack import FORK_UNTIL_REFUSED, Inside, unrefused
from tests.support.timing import eventually

pytestmark = pytest.mark.docker

DISK, INODES, PROCESSES = 64 << 20, 20_000, 96


@pytest.fixture(scope="module")
def box(docker_engine, sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    return sandbox_of(
        provider="docker", root=True, sessions=1, mem="512m", disk=f"{DISK >> 20}m", inodes=INODES, pids_limit=PROCESSES
    )


@pytest.fixture
def root(box: Sandbox) -> Iterator[Inside]:
    with contextlib.closing(Inside(box)) as root:
        yield root


def shell(root: Inside, command: str) -> tuple[int, str]:
    arguments = f"{command!r}, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True"
    return root.see(f"(lambda done: (done.returncode, done.stdout))(subprocess.run({arguments}))")


def test_root_administers_files_and_users(root):
    assert root.see("(os.getuid(), os.getgid(), os.getcwd())") == (0, 0, "/home/user")
    assert shell(root, "mkdir /app && echo new > /usr/bin/tool && rm /usr/bin/id && ls /app /usr/bin/tool") == (
        0,
        "/usr/bin/tool\n\n/app:\n",
    )
    assert shell(root, "useradd -m -s /bin/bash agent && chown -R agent:agent /app && stat -c %U:%G /app") == (
        0,
        "agent:agent\n",
    )
    become = "setpriv --reuid=agent --regid=agent --init-groups sh -c"
    assert shell(root, f"{become} 'touch /app/mine && touch /etc/other'")[0] == 1
    assert shell(root, "stat -c %U /app/mine; ls /etc/other 2>&1")[1].startswith("agent\n")
    assert shell(root, "apt-get --version > /dev/null && passwd -S root | cut -d' ' -f1,2") == (0, "root L\n")


def test_next_episode_begins_with_the_image(root):
    shell(root, "mkdir /app; useradd agent; rm -rf /usr/share/* /etc/passwd; chown 1000 /home/user /tmp; chmod 0 /home/user")
    root.reset()
    assert shell(root, "ls -d /app /etc/passwd /usr/share/zoneinfo 2> /dev/null; id agent 2> /dev/null") == (
        1,
        "/etc/passwd\n/usr/share/zoneinfo\n",
    )
    assert root.see("(os.stat('/home/user').st_uid, oct(os.stat('/home/user').st_mode))") == (0, "0o40700")


def test_next_episode_begins_after_everything_is_removed(root):
    assert shell(root, "rm -rf --no-preserve-root / 2> /dev/null; echo done") == (0, "done\n")
    assert "bin" not in root.see("os.listdir('/usr')") or root.see("os.listdir('/usr/bin')") == []
    root.reset()
    assert shell(root, "id -un") == (0, "root\n")


def test_interpreter_is_replaced_in_directories_of_other_users(root):
    shell(root, "chown 1000:1000 /home/user /tmp /dev/shm; chmod 700 /home/user /tmp; mkdir /app")
    assert root.run("os.kill(os.getpid(), 9)").metadata.outcome is Outcome.KILLED
    root.equip()
    assert root.see("(os.getuid(), os.getcwd(), os.path.isdir('/app'), os.stat('.').st_uid)") == (0, "/home/user", True, 1000)


def test_root_has_no_more_capabilities_than_for_that(root):
    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID.
    found = root.see(
        "[line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapPrm', 'CapEff', 'CapBnd'))]"
    )
    assert found == ["00000000000000fb"] * 3
    assert (
        root.see("[line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapInh', 'CapAmb'))]")
        == ["0" * 16] * 2
    )
    after = "os.setresuid(1000, 1000, 1000); os.execvp('grep', ['grep', 'CapEff', '/proc/self/status'])"
    assert shell(root, f'python3 -c "import os; {after}"') == (0, f"CapEff:\t{'0' * 16}\n")


def test_set_user_id_bits_have_no_effect(root):
    command = "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && setpriv --reuid=1000 --regid=1000 --clear-groups /tmp/id -u"
    assert shell(root, command) == (0, "1000\n")


def test_root_is_refused(root):
    found = root.attempts(
        [
            "call('mount', b'tmpfs', b'/mnt', b'tmpfs', 0, 0)",
            "call('umount2', b'/', 2)",
            "call('umount2', b'/proc/sys', 2)",
            "call('unshare', 0x10000000)",
            "call('unshare', 0x00020000)",
            "os.chroot('/tmp')",
            "os.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
            "os.mknod('/tmp/memory', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
            "open('/proc/sys/kernel/core_pattern', 'w')",
            "open('/proc/sys/vm/overcommit_memory', 'w')",
            "open('/sys/kernel/uevent_helper', 'w')",
            "os.mkdir('/sys/fs/cgroup/mine')",
            "open('/dev/mine', 'w')",
            "os.unlink('/dev/null')",
            "os.chmod('/dev/null', 0)",
            "open('/dev/mqueue/mine', 'w')",
            "open('/proc/1/mem', 'r+b')",
            "open('/proc/1/environ')",
            "os.listdir('/proc/1/root')",
            "os.kill(1, 0)",
            "os.kill(os.getppid(), 0)",
            "call('ptrace', 16, 1, 0, 0)",
            "call('init_module', 0, 0, b'')",
            "call('finit_module', 0, b'', 0)",
            "call('reboot', -18751827, 672274793, 0x1234567, 0)",
            "call('open_by_handle_at', 0, 0, 0)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
            "socket.sethostname('mine')",
            "os.nice(-5)",
        ]
    )
    assert unrefused(found) == {}


def test_processes_of_the_server_are_out_of_reach(root):
    actions = (
        "os.kill({pid}, 0)",
        "os.listdir('/proc/{pid}/root')",
        "open('/proc/{pid}/mem', 'rb')",
        "open('/proc/{pid}/environ').read()",
        "open('/proc/{pid}/maps').read(1)",
        "[os.readlink('/proc/{pid}/fd/' + name) for name in os.listdir('/proc/{pid}/fd')]",
    )
    assert root.see("[name for name in os.listdir('/proc') if name.isdigit() and int(name) != os.getpid()]") == ["1"]
    assert unrefused(root.attempts([action.format(pid=1) for action in actions])) == {}


def test_users_of_the_server_do_not_exist(box, root):
    # The server's, and one of the launcher's on the machine.
    container = psutil.Process(int(box.container.client.api.inspect_container(box.container.id)["State"]["Pid"]))
    users = {process.uids().real for process in container.children(recursive=True)} - {0}
    assert users
    actions = ("os.chown('/tmp', {0}, -1)", "os.setresuid({0}, {0}, {0})")
    attacks = [action.format(user) for action in actions for user in users]
    assert root.attempts(attacks) == dict.fromkeys(attacks, "EINVAL")


def test_socket_of_the_server_does_not_exist(root):
    assert root.see("[name for name in glob.glob('/run/**', recursive=True) if stat.S_ISSOCK(os.lstat(name).st_mode)]") == []


def test_image_stays_unchanged(box, root):
    shell(root, "echo changed > /usr/bin/env; echo changed > /etc/passwd; touch /new; rm -r /opt/coding-gym")
    found = []

    def look():
        # The engine may lose the output of a command that ends at once.
        command = ["sh", "-c", "exec 2>&1; ls /new /opt; wc -c < /usr/bin/env; head -c 4 /etc/passwd"]
        found[:] = [box.container.exec_run(command, user="0")[1].decode()]
        return found[0]

    assert eventually(look)
    assert "cannot access '/new'" in found[0]
    assert "coding-gym" in found[0]
    assert found[0].endswith("root")
    assert len(found[0].split()[-2]) > 3


def test_disk_is_limited_everywhere(root):
    for path in ("/fill", "/usr/fill", "/var/fill", "/home/user/fill", "/tmp/fill"):
        written = root.see(
            f"int(subprocess.run('dd if=/dev/zero of={path} bs=1M; stat -c %s {path}', shell=True, "
            "capture_output=True, text=True).stdout)"
        )
        assert DISK // 2 < written <= DISK
        root.do(f"os.unlink({path!r})")
    root.do("""
        made = 0
        try:
            while True:
                os.mkdir(f"/opt/{made}")
                made += 1
        except OSError as error:
            found = errno.errorcode[error.errno]
    """)
    assert root.see("found") == "ENOSPC"
    assert root.see("made") < INODES
    root.reset()
    assert root.see("os.statvfs('/').f_bavail * os.statvfs('/').f_frsize") > DISK // 2


def test_fork_bomb_ends_the_session_only(root):
    # The step may fail itself, as there are no processes left.
    root.run(FORK_UNTIL_REFUSED)

    def can_begin():
        # Nor may the server have threads for it.
        try:
            root.reset()
        except ProtocolError:
            return False
        # Processes that were killed count until the kernel has ended them.
        return root.run("import subprocess\nprint(subprocess.getoutput('id -un'))").stdout == "root\n"

    assert eventually(can_begin)


def test_copies_are_refused(root):
    with pytest.raises(Exception, match="are root"):
        root._session.clone()
