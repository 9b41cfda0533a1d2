"""Isolation of the machine by the container: an attack from inside for each of its flags."""

from __future__ import annotations

import contextlib

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.security.attack import REFUSED, Inside

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", params=["unix", "tcp"])
def box(docker_engine, request):
    config = SandboxConfig(provider="docker", transport=request.param, preload=(), pids_limit=64, mem="512m", disk="16m")
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def attacker(box):
    with contextlib.closing(Inside(box)) as attacker:
        yield attacker


@pytest.mark.parametrize(
    "path", ["/", "/usr/bin", "/etc", "/opt/coding-gym", "/run/coding-gym", "/var/tmp", "/root", "/sys", "/proc"]
)
@pytest.mark.parametrize(
    "action", ["open('{}/new', 'w')", "os.mkdir('{}/new')", "os.symlink('/', '{}/new')", "os.mkfifo('{}/new')"]
)
def test_nothing_can_be_created_outside_workspace(attacker, action, path):
    assert attacker.attempt(action.format(path)) in {*REFUSED, "ENOENT"}


@pytest.mark.parametrize(
    "action",
    [
        "os.unlink('/etc/passwd')",
        "os.rename('/etc/passwd', 'passwd')",
        "os.truncate('/etc/passwd', 0)",
        "os.chmod('/etc/passwd', 0o666)",
        "os.chown('/etc/passwd', os.getuid(), -1)",
        "os.utime('/etc/passwd')",
        "os.setxattr('/etc/passwd', 'user.x', b'')",
        "os.link('/etc/passwd', 'hard')",
        "open(sys.executable, 'r+b')",
        "os.chmod('/workspaces', 0o777)",
        "os.listdir('/workspaces')",
        "os.chroot('/')",
        "os.mknod('c', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
        "os.mknod('b', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
        "os.setuid(0)",
        "os.setgid(0)",
        "os.setgroups([0])",
        "os.setresuid(0, 0, 0)",
        "os.nice(-5)",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "socket.sethostname('other')",
        "time.clock_settime(time.CLOCK_REALTIME, 0)",
    ],
)
def test_privileged_operations_are_refused(attacker, action):
    # EINVAL: the user namespace of a session has only the user of the session.
    assert attacker.attempt(action) in {*REFUSED, "EXDEV", "EINVAL"}


@pytest.mark.parametrize(
    "call",
    [
        "mount, b'none', b'/tmp', b'tmpfs', 0, 0",
        "mount, b'/', b'/tmp', 0, 4096, 0",
        "mount, 0, b'/', 0, 32 | 4096, 0",
        "umount2, b'/proc', 2",
        "pivot_root, b'.', b'.'",
        "open_tree, -100, b'/', 1",
        "fsopen, b'tmpfs', 0",
        "mount_setattr, -100, b'/', 0, bytes(32), 32",
        "reboot, 0xfee1dead, 672274793, 0, 0",
        "kexec_load, 0, 0, 0, 0",
        "init_module, b'', 0, b''",
        "finit_module, 0, b'', 0",
        "delete_module, b'loop', 0",
        "swapon, b'/tmp', 0",
        "acct, 0",
        "syslog, 3, bytes(16), 16",
        "bpf, 0, bytes(64), 64",
        "perf_event_open, bytes(112), 0, -1, -1, 0",
        "add_key, b'user', b'x', b'x', 1, -3",
        "keyctl, 0, -3, 0",
        "request_key, b'user', b'x', 0, -3",
        "name_to_handle_at, -100, b'/', bytes(136), bytes(4), 0",
        "open_by_handle_at, 3, bytes(136), 0",
        "settimeofday, bytes(16), 0",
        "sethostname, b'x', 1",
        "quotactl, 0, 0, 0, 0",
        "vhangup",
    ],
)
def test_privileged_system_calls_are_refused(attacker, call):
    name, _, arguments = call.partition(", ")
    assert attacker.attempt(f"call('{name}', {arguments})") in REFUSED


NAMESPACES = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


@pytest.mark.parametrize("flag", NAMESPACES.values(), ids=NAMESPACES)
@pytest.mark.parametrize("way", ["call('unshare', {})", "call('clone', {} | 17, 0, 0, 0, 0)"])
def test_new_namespaces_are_refused(attacker, way, flag):
    assert attacker.attempt(way.format(flag)) in REFUSED


@pytest.mark.parametrize("flag", [*NAMESPACES.values(), 0x80, 0x200000000], ids=[*NAMESPACES, "time", "into-cgroup"])
def test_clone3_cannot_create_namespaces(attacker, flag):
    assert attacker.attempt(f"call('clone3', struct.pack('11Q', {flag}, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)") == "ENOSYS"


@pytest.mark.parametrize("name", ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup"])
def test_entering_namespaces_is_refused(attacker, name):
    assert attacker.attempt(f"call('setns', os.open('/proc/self/ns/{name}', os.O_RDONLY), 0)") == "EPERM"


def test_only_unix_and_netlink_sockets_are_allowed(attacker):
    families = attacker.see(
        "[(f, k, p) for f in range(50) for k in (1, 2, 3, 5) for p in (0, 1, 6, 9, 12, 17, 58, 255)"
        " if attempt(lambda: socket.socket(f, k, p)) not in ('EACCES', 'EPERM', 'EPROTONOSUPPORT')]"
    )
    # The kernel itself refuses nonexistent types of these families; the only netlink protocol is 0, NETLINK_ROUTE.
    assert {family for family, _, _ in families} == {1, 16}
    assert {protocol for family, _, protocol in families if family == 16} == {0}


def test_interfaces_cannot_be_changed(attacker):
    # RTM_NEWLINK: bring loopback down; the response is NLMSG_ERROR with the negative errno.
    attacker.do("""
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        link.send(struct.pack("=IHHII", 32, 16, 5, 1, 0) + struct.pack("=BBHiII", 0, 0, 0, 1, 0, 1))
        answer = link.recv(4096)
    """)
    assert attacker.see("struct.unpack_from('=HHIIi', answer, 4)[4]") == -1


@pytest.mark.parametrize(
    "action",
    [
        "socket.create_connection(('127.0.0.1', 8000), 2)",
        "socket.create_connection(('172.17.0.1', 22), 2)",
        "socket.create_connection(('169.254.169.254', 80), 2)",
        "socket.create_connection(('::1', 8000), 2)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('172.17.0.1', 53))",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)",
    ],
)
def test_network_is_unreachable(attacker, action):
    assert attacker.attempt(action) in REFUSED


def test_host_names_are_not_resolved(attacker):
    assert attacker.attempt("socket.getaddrinfo('host.invalid', 80)") == "gaierror"


@pytest.mark.parametrize(
    "name", ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "loop-control", "loop0", "vda", "sda", "console", "core"]
)
def test_devices_are_inaccessible(attacker, name):
    assert attacker.attempt(f"os.open('/dev/{name}', os.O_RDONLY)") in {*REFUSED, "ENOENT", "ENXIO"}


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/pid_max",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/self/oom_score_adj",
        "/proc/self/uid_map",
        "/proc/self/setgroups",
        "/proc/self/attr/current",
        "/proc/irq/default_smp_affinity",
        "/proc/bus/pci/devices",
        "/proc/acpi/wakeup",
        "/proc/kcore",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/fs/cgroup/release_agent",
        "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/pids/pids.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/devices/devices.allow",
        "/sys/module/loop/parameters/max_loop",
    ],
)
def test_kernel_settings_are_not_writable(attacker, path):
    assert attacker.attempt(f"os.open({path!r}, os.O_WRONLY)") in {*REFUSED, "ENOENT"}


@pytest.mark.parametrize(
    "path", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/1/environ", "/sys/firmware/dmi/tables/DMI"]
)
def test_kernel_secrets_are_not_readable(attacker, path):
    assert (
        attacker.see(f"open({path!r}, 'rb').read() if attempt(lambda: open({path!r}, 'rb').read()) == 'done' else b''") == b""
    )


@pytest.mark.parametrize(
    "path", ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"]
)
def test_engine_socket_is_unreachable(attacker, path):
    assert attacker.attempt(f"socket.socket(socket.AF_UNIX).connect({path!r})") in {"ENOENT", "EACCES"}


def test_code_runs_without_privileges(attacker):
    status = dict(line.split(":\t") for line in attacker.see("open('/proc/self/status').read()").splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert "0" not in (*status["Uid"].split(), *status["Gid"].split(), *status["Groups"].split())


def test_setuid_program_gains_nothing(attacker):
    attacker.do("""
        programs = [path for path in glob.glob("/usr/*bin/*") if os.stat(path).st_mode & 0o6000]
        su = subprocess.Popen(["su", "root"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.2)
        ids = set(re.search(r"Uid:(.*)", open(f"/proc/{su.pid}/status").read())[1].split())
        su.kill()
    """)
    assert "/usr/bin/su" in attacker.see("programs")
    assert "0" not in attacker.see("ids")
    # A set-user-ID file created by the session gains nothing either.
    assert attacker.attempt("(open('own', 'w').close(), os.chmod('own', 0o4755), os.chown('own', 0, 0))") in ("EPERM", "EINVAL")


@pytest.mark.parametrize("name", ["NOFILE", "CORE", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "MEMLOCK"])
def test_limits_cannot_be_raised(attacker, name):
    limit = f"resource.RLIMIT_{name}"
    raised = f"resource.setrlimit({limit}, (0, resource.getrlimit({limit})[1] + 1))"
    assert attacker.run(raised).stderr.strip().endswith(("not allowed to raise maximum limit", "Operation not permitted"))


def test_number_of_descriptors_is_limited(attacker):
    attacker.do("""
        held = []
        try:
            while len(held) < 1_000_000:
                held.append(os.dup(0))
        except OSError as error:
            found = errno.errorcode[error.errno]
        for descriptor in held:
            os.close(descriptor)
    """)
    assert attacker.see("(found, len(held) < 4096)") == ("EMFILE", True)


def test_core_dumps_are_disabled(attacker):
    attacker.run("pid = os.fork()\nif pid == 0: os.abort()\n_, status = os.waitpid(pid, 0)")
    assert attacker.see("(os.WCOREDUMP(status), glob.glob('*core*'))") == (False, [])
