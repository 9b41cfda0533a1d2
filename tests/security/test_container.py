"""Isolation of the machine by the container: an attack from inside for each of its flags."""

from __future__ import annotations

import contextlib

import pytest

from tests.security.attack import Inside, unrefused
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", params=["unix", "tcp"])
def box(docker_engine, request):
    with lasting_sandbox(provider="docker", transport=request.param, pids_limit=64, mem="512m", disk="16m") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def attacker(box):
    with contextlib.closing(Inside(box)) as attacker:
        yield attacker


def test_nothing_can_be_created_outside_workspace(attacker):
    paths = ("/", "/usr/bin", "/etc", "/opt/coding-gym", "/run/coding-gym", "/var/tmp", "/root", "/sys", "/proc")
    actions = ("open('{}/new', 'w')", "os.mkdir('{}/new')", "os.symlink('/', '{}/new')", "os.mkfifo('{}/new')")
    found = attacker.attempts([action.format(path) for action in actions for path in paths])
    assert unrefused(found, "ENOENT") == {}


def test_privileged_operations_are_refused(attacker):
    found = attacker.attempts(
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
        ]
    )
    # EINVAL: the user namespace of a session has only the user of the session.
    assert unrefused(found, "EXDEV", "EINVAL") == {}


def test_privileged_system_calls_are_refused(attacker):
    found = attacker.attempts(
        [
            "call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)",
            "call('mount', b'/', b'/tmp', 0, 4096, 0)",
            "call('mount', 0, b'/', 0, 32 | 4096, 0)",
            "call('umount2', b'/proc', 2)",
            "call('pivot_root', b'.', b'.')",
            "call('open_tree', -100, b'/', 1)",
            "call('fsopen', b'tmpfs', 0)",
            "call('mount_setattr', -100, b'/', 0, bytes(32), 32)",
            "call('reboot', 0xfee1dead, 672274793, 0, 0)",
            "call('kexec_load', 0, 0, 0, 0)",
            "call('init_module', b'', 0, b'')",
            "call('finit_module', 0, b'', 0)",
            "call('delete_module', b'loop', 0)",
            "call('swapon', b'/tmp', 0)",
            "call('acct', 0)",
            "call('syslog', 3, bytes(16), 16)",
            "call('bpf', 0, bytes(64), 64)",
            "call('perf_event_open', bytes(112), 0, -1, -1, 0)",
            "call('add_key', b'user', b'x', b'x', 1, -3)",
            "call('keyctl', 0, -3, 0)",
            "call('request_key', b'user', b'x', 0, -3)",
            "call('name_to_handle_at', -100, b'/', bytes(136), bytes(4), 0)",
            "call('open_by_handle_at', 3, bytes(136), 0)",
            "call('settimeofday', bytes(16), 0)",
            "call('sethostname', b'x', 1)",
            "call('quotactl', 0, 0, 0, 0)",
            "call('vhangup')",
        ]
    )
    assert unrefused(found) == {}


NAMESPACES = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


def test_new_namespaces_are_refused(attacker):
    ways = ("call('unshare', {})", "call('clone', {} | 17, 0, 0, 0, 0)")
    found = attacker.attempts({f"{way} {name}": way.format(flag) for way in ways for name, flag in NAMESPACES.items()})
    assert unrefused(found) == {}


def test_clone3_cannot_create_namespaces(attacker):
    flags = {**NAMESPACES, "time": 0x80, "into cgroup": 0x200000000}
    call = "call('clone3', struct.pack('11Q', {}, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)"
    found = attacker.attempts({name: call.format(flag) for name, flag in flags.items()})
    assert found == dict.fromkeys(flags, "ENOSYS")


def test_entering_namespaces_is_refused(attacker):
    names = ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup")
    found = attacker.attempts({name: f"call('setns', os.open('/proc/self/ns/{name}', os.O_RDONLY), 0)" for name in names})
    assert found == dict.fromkeys(names, "EPERM")


def test_only_harmless_sockets_are_allowed(attacker):
    families = attacker.see(
        "[(f, k, p) for f in range(50) for k in (1, 2, 3, 5) for p in (0, 1, 6, 9, 12, 17, 58, 255)"
        " if attempt(lambda: socket.socket(f, k, p)) not in ('EACCES', 'EPERM', 'EPROTONOSUPPORT')]"
    )
    # The kernel itself refuses nonexistent types of these families; the only netlink protocol is 0, NETLINK_ROUTE.
    assert {family for family, _, _ in families} == {1, 2, 10, 16}
    assert {protocol for family, _, protocol in families if family == 16} == {0}
    # ICMP and ICMPv6 only where the kernel permits them to a group.
    assert {(kind, protocol) for family, kind, protocol in families if family in (2, 10)} <= {
        *((1, protocol) for protocol in (0, 6)),
        *((2, protocol) for protocol in (0, 1, 17, 58)),
    }


def test_netlink_sockets_are_few(attacker):
    """What the kernel queues for them is charged to no control group."""
    attacker.do("""
        opened = []
        refusal = attempt(lambda: [opened.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)) for _ in range(100)])
    """)
    assert attacker.see("(len(opened), refusal)") == (16, "EMFILE")
    attacker.do("opened.clear()")
    assert attacker.see("socket.if_nameindex()") == [(1, "lo")]


def test_interfaces_cannot_be_changed(attacker):
    # RTM_NEWLINK: bring loopback down; the response is NLMSG_ERROR with the negative errno.
    attacker.do("""
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        link.send(struct.pack("=IHHII", 32, 16, 5, 1, 0) + struct.pack("=BBHiII", 0, 0, 0, 1, 0, 1))
        answer = link.recv(4096)
    """)
    assert attacker.see("struct.unpack_from('=HHIIi', answer, 4)[4]") == -1


def test_network_is_unreachable(attacker):
    found = attacker.attempts(
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
        ]
    )
    assert unrefused(found, "ECONNREFUSED", "ENETUNREACH") == {}


def test_host_names_are_not_resolved(attacker):
    assert attacker.attempt("socket.getaddrinfo('host.invalid', 80)") == "gaierror"


def test_devices_are_inaccessible(attacker):
    names = ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "loop-control", "loop0", "vda", "sda", "console", "core"]
    found = attacker.attempts({name: f"os.open('/dev/{name}', os.O_RDONLY)" for name in names})
    assert unrefused(found, "ENOENT", "ENXIO") == {}


def test_kernel_settings_are_not_writable(attacker):
    paths = [
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
    ]
    found = attacker.attempts({path: f"os.open({path!r}, os.O_WRONLY)" for path in paths})
    assert unrefused(found, "ENOENT") == {}


def test_kernel_secrets_are_not_readable(attacker):
    paths = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/1/environ", "/sys/firmware/dmi/tables/DMI")
    # IndexError: it is empty.
    found = attacker.attempts({path: f"open({path!r}, 'rb').read(1)[0]" for path in paths})
    assert unrefused(found, "ENOENT", "IndexError") == {}


def test_engine_socket_is_unreachable(attacker):
    paths = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
    found = attacker.attempts({path: f"socket.socket(socket.AF_UNIX).connect({path!r})" for path in paths})
    assert {path: result for path, result in found.items() if result not in ("ENOENT", "EACCES")} == {}


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


def test_limits_cannot_be_raised(attacker):
    names = ("NOFILE", "CORE", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "MEMLOCK")
    limit = "resource.RLIMIT_{0}, struct.pack('QQ', 0, resource.getrlimit(resource.RLIMIT_{0})[1] + 1)"
    found = attacker.attempts({name: f"call('prlimit64', 0, {limit.format(name)}, 0)" for name in names})
    assert found == dict.fromkeys(names, "EPERM")


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
