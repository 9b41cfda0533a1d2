"""A session has no access to the server, the zygote, its root and other sessions."""

from __future__ import annotations

import contextlib
import os
import textwrap
import threading

import httpx
import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Outcome
from tests.security.attack import Inside, bracketed, unrefused
from tests.support.sandbox_processes import server_of
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually

pytestmark = pytest.mark.every_provider


@pytest.fixture(scope="module")
def inside(box):
    """Attacker and victim, shared by all attacks that leave both unchanged."""
    with contextlib.closing(Inside(box)) as attacker, contextlib.closing(Inside(box)) as victim:
        victim.do("""
            kept = 'kept'
            child = subprocess.Popen(['sleep', '1000'])
            open('file', 'w').write('kept')
            os.mkdir('directory')
        """)
        # Others have no name for a session's directory, nor for its processes.
        attacker.do("root = os.getppid(); victims = '/proc/1/cwd'; init = 1")
        yield attacker, victim


@pytest.fixture(scope="module")
def attacker(inside):
    return inside[0]


@pytest.fixture
def victim(inside):
    victim = inside[1]
    yield victim
    assert victim.see("(kept, child.poll(), open('file').read(), os.listdir('directory'))") == ("kept", None, "kept", [])


def at_root(action):
    """Return an expression that aims at the only process that is not the attacker's own."""
    return f"(lambda pid: {action})(root)"


# Processes


SIGNAL_WAYS = {
    "kill": "os.kill(pid, {})",
    "killpg": "os.killpg(os.getpgid(pid), {})",
    "tkill": "call('tkill', pid, {})",
    "tgkill": "call('tgkill', pid, pid, {})",
    "sigqueue": "call('rt_sigqueueinfo', pid, {}, struct.pack('iiiiii', {}, 0, -1, 0, 0, 0) + bytes(104))",
    "tgsigqueue": "call('rt_tgsigqueueinfo', pid, pid, {}, struct.pack('iiiiii', {}, 0, -1, 0, 0, 0) + bytes(104))",
    "pidfd": "call('pidfd_send_signal', os.pidfd_open(pid), {}, 0, 0)",
}


def test_signals_to_other_processes_are_refused(attacker, victim):
    # Signal 0, which ends nothing, shows all that get through.
    for number in (0, 2, 9, 15, 19):
        found = attacker.attempts(
            {f"{way}, {number}": at_root(action.replace("{}", str(number))) for way, action in SIGNAL_WAYS.items()}
        )
        # ESRCH: without a process namespace, the process group may be outside of the container.
        assert {attack: result for attack, result in found.items() if result not in ("EPERM", "ESRCH")} == {}


def test_descriptor_owner_signals_reach_no_process(attacker, victim):
    attacker.do("""
        ours, theirs = socket.socketpair()
        attempt(lambda: fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL))
        for owner in (root, -root):
            attempt(lambda: fcntl.fcntl(ours, fcntl.F_SETOWN, owner))
            attempt(lambda: fcntl.fcntl(ours, 15, struct.pack("ii", 1, root)))  # F_SETOWN_EX
            fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            theirs.send(b"x")
    """)


CONTROL = [
    "call('ptrace', 16, pid, 0, 0)",
    "call('ptrace', 0x4206, pid, 0, 0)",
    "call('process_vm_readv', pid, struct.pack('PL', ctypes.addressof(page), 8), 1, struct.pack('PL', 0x400000, 8), 1, 0)",
    "call('process_vm_writev', pid, struct.pack('PL', ctypes.addressof(page), 8), 1, struct.pack('PL', 0x400000, 8), 1, 0)",
    "call('process_madvise', os.pidfd_open(pid), struct.pack('PL', 0x400000, 4096), 1, 20, 0)",
    "call('pidfd_getfd', os.pidfd_open(pid), 0, 0)",
    "call('kcmp', os.getpid(), pid, 0, 0, 0)",
    "call('migrate_pages', pid, 1, bytes(8), bytes(8))",
    "call('move_pages', pid, 0, 0, 0, 0, 0)",
    "call('process_mrelease', os.pidfd_open(pid), 0)",
    "call('get_robust_list', pid, bytes(8), bytes(8))",
    "resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))",
    "resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))",
    "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    "os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19)",
    "os.setpriority(os.PRIO_USER, 0, 0)",
    "os.setpriority(os.PRIO_USER, os.getuid(), 0)",
    "call('ioprio_set', 1, pid, 3 << 13)",
    "call('ioprio_set', 2, os.getpgid(pid), 3 << 13)",
    "call('ioprio_set', 3, os.getuid(), 0)",
    "os.sched_setaffinity(pid, {0})",
    "os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))",
    "os.sched_setparam(pid, os.sched_param(0))",
    "call('sched_setattr', pid, struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0)",
    "os.setpgid(pid, 0)",
]


def test_processes_cannot_be_traced_or_controlled(attacker, victim):
    attacker.do("page = ctypes.create_string_buffer(64)")
    found = attacker.attempts({action: at_root(action) for action in CONTROL})
    # ESRCH: setpgid of a process that is not a child.
    assert unrefused(found, "ESRCH") == {}


READABLE = """
    mem environ maps smaps smaps_rollup numa_maps pagemap auxv stack syscall io fd/0 fd/3 fdinfo/0 map_files root cwd exe
    ns/net task/{pid}/mem task/{pid}/environ timers patch_state personality
"""
WRITABLE = """
    mem oom_score_adj oom_adj comm autogroup clear_refs coredump_filter timerslack_ns setgroups uid_map gid_map projid_map
    loginuid attr/current attr/exec sched timens_offsets make-it-fail latency
"""


def test_process_information_is_not_readable(attacker, victim):
    attacker.do("def read(path):\n    with open(path, 'rb') as file: file.read(1)")
    found = attacker.attempts(
        {
            f"{look} of {name}": at_root(f"{look}(f'/proc/{{pid}}/{name}')")
            for look in ("read", "os.listdir", "os.readlink")
            for name in READABLE.split()
        }
    )
    # Not all files exist on all kernels, and only one of the three functions applies to each.
    assert unrefused(found, "ENOENT", "EINVAL", "ENOTDIR", "ESRCH", "EISDIR") == {}


def test_process_settings_are_not_writable(attacker, victim):
    found = attacker.attempts({name: at_root(f"os.open(f'/proc/{{pid}}/{name}', os.O_WRONLY)") for name in WRITABLE.split()})
    assert unrefused(found, "ENOENT") == {}


def test_control_groups_are_not_writable(attacker, victim):
    groups = attacker.see(
        "[path for name in ('cgroup.procs', 'tasks') for path in glob.glob(f'/sys/fs/cgroup/**/{name}', recursive=True)][:50]"
    )
    # The groups of containers that have ended since do not exist.
    assert unrefused(attacker.attempts({path: f"os.open({path!r}, os.O_WRONLY)" for path in groups}), "ENOENT") == {}


def test_reparented_children_cannot_kill_root(attacker, victim):
    # CLONE_PARENT creates a sibling; the signal that its parent receives when it exits is not SIGKILL.
    attacker.do("""
        pid = call("clone", 0x8000 | signal.SIGKILL, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        time.sleep(0.1)
    """)
    assert attacker.see("os.getppid() == root")


# Files


CAT = "subprocess.run(['cat', f'{victims}/file'], check=True, stderr=-3) and None"
ON_FILES = [
    "open(f'{victims}/file')",
    "open(f'{victims}/file', 'r+')",
    "open(f'{victims}/new', 'w')",
    "os.truncate(f'{victims}/file', 0)",
    "os.listdir(victims)",
    "os.scandir(f'{victims}/..')",
    "os.unlink(f'{victims}/file')",
    "os.rmdir(f'{victims}/directory')",
    "os.mkdir(f'{victims}/new')",
    "os.mkfifo(f'{victims}/new')",
    "os.symlink('/', f'{victims}/new')",
    "os.rename(f'{victims}/file', 'file')",
    "os.rename(f'{victims}/file', f'{victims}/new')",
    "(open('own', 'w'), os.rename('own', f'{victims}/directory/own'))",
    "call('renameat2', -100, f'{victims}/file'.encode(), -100, b'own', 2)",
    "os.link(f'{victims}/file', 'linked')",
    "(open('own', 'w'), os.link('own', f'{victims}/directory/own'))",
    "(os.symlink(f'{victims}/file', f'to{time.time()}'), [open(l).read() for l in glob.glob('to*')])",
    "open(f'/proc/self/root{victims}/file')",
    "open(f'/proc/self/cwd/../../{victims.split(\"/\")[-2]}/work/file')",
    "open(f'/proc/self/fd/{os.open(f\"{victims}/file\", os.O_PATH)}')",
    "os.listdir(f'/proc/self/fd/{os.open(victims, os.O_PATH)}')",
    "os.open('file', os.O_RDONLY, dir_fd=os.open(victims, os.O_PATH))",
    "call('openat2', -100, f'{victims}/file'.encode(), struct.pack('QQQ', 0, 0, 0), 24)",
    "call('name_to_handle_at', -100, f'{victims}/file'.encode(), struct.pack('Ii', 128, 0) + bytes(128), bytes(4), 0)",
    CAT,
    "call('inotify_init1', 0)",
    "call('fanotify_init', 0, 0)",
    "fcntl.fcntl(os.open('.', os.O_RDONLY), 1026, 2)",
    "fcntl.fcntl(open('/etc/passwd'), 1024, fcntl.F_RDLCK)",
    "os.chmod(f'{victims}/../..', 0o777)",
    "os.listdir(f'{victims}/../..')",
    "os.rename(os.path.dirname(victims), os.path.dirname(victims) + 'new')",
    "os.mkdir(f'{victims}/../../new')",
    "os.listdir('/dev/shm')",
    "os.chmod('/dev/shm', 0o777)",
    "os.mkdir('/dev/shm/new')",
    "os.symlink('/', '/dev/shm/new')",
    "os.mkfifo('/dev/shm/new')",
    "socket.socket(socket.AF_UNIX).bind('/dev/shm/new')",
    "os.openpty()",
    "os.listdir('/dev/pts')",
    "os.open('/dev/pts/0', os.O_RDWR)",
    "open('/dev/mqueue/new', 'w')",
    "open('/tmp/new', 'w')",
    "open('/var/tmp/new', 'w')",
    # The last, because it might leave the attacker in another directory.
    "(os.chdir(victims), open('file'))",
]


def test_files_of_other_sessions_are_inaccessible(attacker, victim):
    before = attacker.see("os.getcwd()")
    found = attacker.attempts(ON_FILES)
    attacker.do(f"os.chdir({before!r})")
    # EXDEV: Landlock's error for moves and links. ENOENT: paths that only the container or the local sandbox has.
    left = unrefused(found, "EXDEV", "ENOENT")
    # A program tells its error by its exit status.
    assert left.pop(CAT) == "CalledProcessError"
    # The others are its own.
    harmless = {"done", "EEXIST", "EADDRINUSE"}
    assert {action: result for action, result in left.items() if "victims" in action or result not in harmless} == {}


BY_PATH = ["os.utime(f'{victims}/file')", "socket.socket(socket.AF_UNIX).connect(f'{victims}/socket')"]


def test_known_workspace_name_allows_no_access(attacker, victim):
    victim.do("s = socket.socket(socket.AF_UNIX); s.bind(os.path.abspath('socket')); s.listen()")
    try:
        found = attacker.attempts(BY_PATH)
    finally:
        victim.do("s.close(); os.unlink('socket')")
    assert unrefused(found) == {}


def test_foreign_abstract_sockets_are_unreachable(attacker, victim):
    victim.do("s = socket.socket(socket.AF_UNIX); s.bind('\\0' + 'abstract'); s.listen()")
    victim.do("d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind('\\0' + 'datagrams')")
    found = attacker.attempts(
        {
            "stream": "socket.socket(socket.AF_UNIX).connect('\\0abstract')",
            "datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'', '\\0datagrams')",
        }
    )
    victim.do("s.close(); d.close()")
    assert found == {"stream": "ECONNREFUSED", "datagram": "ECONNREFUSED"}


# Server


def socket_of_the_server(box, attacker):
    if "Docker" in box.description:
        return "/run/coding-gym/server.sock"
    return f"{os.path.dirname(os.path.dirname(os.path.dirname(attacker.see('os.getcwd()'))))}/run/server.sock"


def test_server_refuses_connections_from_sessions(box, attacker, victim):
    attacker.do(f"""
        def plain():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect({socket_of_the_server(box, attacker)!r})
                connection.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
                return connection.recv(100)
        def tell(action):
            try: return action()
            except OSError: return b""
        def child(action):
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, b"<" + tell(action) + b">")
                os._exit(0)
            os.close(writer)
            return os.read(reader, 1000).strip(b"<>")
        def orphan(action):
            def daemon():
                os.setsid()
                return child(action)
            return child(daemon)
    """)
    found = attacker.sees(
        {
            "worker": "tell(plain)",
            "child that is gone": "tell(lambda: child(plain))",
            "orphan in another session": "tell(lambda: orphan(plain))",
        }
    )
    assert found == dict.fromkeys(found, b"")


def test_server_accepts_no_listeners_from_sessions(box, attacker, victim):
    attacker.do(f"""
        def hand_over():
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{{os.getcwd()}}/listener")
            listener.listen()
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect({socket_of_the_server(box, attacker)!r} + ".listeners")
                socket.send_fds(connection, [b"x"], [listener.fileno()])
                return connection.recv(100)
        def tell(action):
            try: return action()
            except OSError: return b""
    """)
    assert attacker.see("tell(hand_over)") == b""


def test_connection_flood_from_inside_blocks_no_client(box, attacker, victim):
    attacker.begin(f"""
        until = time.monotonic() + 1
        while time.monotonic() < until:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.setblocking(False)
                attempt(lambda: connection.connect({socket_of_the_server(box, attacker)!r}))
    """)
    for _ in range(5):
        with contextlib.closing(box.connect(timeout=30)) as session:
            session.ask_step("1")
            assert session.wait(timeout=30).observation.stdout == "1\n"
    attacker.wait()


SEARCH = textwrap.dedent("""
    found = []
    def look(where, data):
        if re.search(pattern.encode(), data):
            found.append(where)
    look("memory", b"\\n".join(own_memory()))
    look("environment", repr(dict(os.environ)).encode())
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/*"):
        attempt(lambda: look(path, open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb").read(1 << 20)))
    # What a session's own directories cover is Python.
    visible = [path for path in glob.glob("/run/*") if path not in ("/run/covered", "/run/beside")]
    for top in (*visible, "/tmp", "/dev/shm", "/var", "/workspaces", "/etc", "/home"):
        for directory, _, names in os.walk(top):
            for path in (os.path.join(directory, name) for name in names):
                attempt(lambda: look(path, open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb").read(1 << 20)))
    for number in os.listdir("/proc/self/fd"):
        attempt(lambda: look(number, os.readlink(f"/proc/self/fd/{number}").encode()))
""")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"provider": "docker", "transport": "unix"}, marks=pytest.mark.docker, id="docker-unix"),
        pytest.param({"provider": "docker", "transport": "tcp"}, marks=pytest.mark.docker, id="docker-tcp"),
        pytest.param({"provider": "local"}, id="local"),
    ],
)
def test_token_cannot_be_found(request, options):
    if options["provider"] == "docker":
        request.getfixturevalue("docker_engine")
    with (
        contextlib.closing(start_sandbox(SandboxConfig(**options, preload=()))) as sandbox,
        contextlib.closing(Inside(sandbox)) as attacker,
    ):
        attacker.do("control = 'tok' + 'en-of-the-control'")
        attacker.do(f"pattern = {bracketed('token-of-the-control')!r}" + SEARCH)
        assert "memory" in attacker.see("found")
        attacker.do(f"pattern = {bracketed(sandbox.address.token)!r}" + SEARCH)
        assert attacker.see("found") == []
        if options.get("transport") == "tcp":
            assert httpx.get(f"{sandbox.address}/state").status_code == 401


@pytest.mark.docker
def test_session_with_network_still_needs_token(docker_engine):
    with (
        contextlib.closing(
            start_sandbox(SandboxConfig(provider="docker", transport="tcp", network="bridge", preload=()))
        ) as sandbox,
        contextlib.closing(Inside(sandbox)) as attacker,
    ):
        attacker.do("""
            import urllib.request, urllib.error
            def status(path):
                try: return urllib.request.urlopen("http://127.0.0.1:8000" + path, timeout=5).status
                except urllib.error.HTTPError as error: return error.code
        """)
        assert attacker.see("(status('/health'), status('/state'))") == (200, 401)


# Memory


FIND_SECRETS = """{
    secret.decode() for area in own_memory() for secret in re.findall(rb"hid[d]en-[a-z-]+", area)
}"""


def test_memory_contains_no_data_of_other_sessions(enter):
    closed, kept = enter(), enter()
    for session, end in ((closed, "close"), (kept, "reset")):
        session.do(f"""
            secret = "hidden" + "-in-a-variable-before-{end}"
            print("hidden" + "-in-the-output-before-{end}")
            name = "hidden" + "-in-a-name-before-{end}"
            os.makedirs(name + "/" + name)
            for n in range(300):
                open(f"{{name}}/{{n}}{{name}}", "w").write("hidden" + "-in-a-file-before-{end}")
            libc.prctl(15, b"hidden" + b"-comm", 0, 0, 0)
            sleeper = subprocess.Popen(["sleep", "1000"])
        """)
        session.do(f"# hidden-in-the-code-before-{end}")
    beside = enter()
    for session, end in ((closed, "close"), (kept, "reset")):
        assert f"hidden-in-a-variable-before-{end}" in session.see(FIND_SECRETS)
    assert beside.see(FIND_SECRETS) == set()
    closed.close()
    kept.reset()
    later = [enter() for _ in range(2)]
    for session in (beside, kept, *later):
        for _ in range(2):
            assert session.see(FIND_SECRETS) == set()
            session.reset()


# Channel of the worker


def test_worker_inherits_only_its_own_descriptors(enter):
    attacker = enter()
    attacker.do("""
        kinds = {}
        for number in os.listdir("/proc/self/fd"):
            try: kinds[int(number)] = re.sub(r"[0-9]+", "N", os.readlink(f"/proc/self/fd/{number}"))
            except OSError: pass
    """)
    kinds = attacker.see("kinds")
    assert {number: kinds.pop(number) for number in (0, 1, 2)} == {0: "/dev/null", 1: "pipe:[N]", 2: "pipe:[N]"}
    # Duplicates of the three, and the channel.
    kinds = {number: kind for number, kind in kinds.items() if number >= 200}
    assert sorted(kinds.values()) == ["/dev/null", "pipe:[N]", "pipe:[N]", "socket:[N]"]
    assert attacker.see("(fcntl.fcntl(0, fcntl.F_GETFL) & 3, fcntl.fcntl(1, fcntl.F_GETFL) & 3)") == (os.O_RDONLY, os.O_WRONLY)


FIND_THE_CHANNEL = """
    numbers = [int(n) for n in os.listdir("/proc/self/fd") if attempt(lambda: os.readlink(f"/proc/self/fd/{n}")) == "done"]
    channel = socket.socket(fileno=next(n for n in numbers if stat.S_ISSOCK(os.fstat(n).st_mode)))
    def message(body):
        return struct.pack("<I", len(body)) + body
    def text(value):
        return bytes([0xA0 | len(value)]) + value.encode()
    def tagged(name, field=None, value=b""):
        return message(b"\\x81" + text("type") + text(name) if field is None
                       else b"\\x82" + text("type") + text(name) + text(field) + value)
    def send(data):
        try: channel.sendall(data)
        except OSError: pass
    def flood(data):
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            send(data)
"""


CHANNEL_ABUSES = [
    "send(os.urandom(10_000))",
    "send(bytes(10_000))",
    "send(struct.pack('<I', 0xFFFFFFFF) + b'x')",
    "send(struct.pack('<I', 1 << 20) + bytes(1 << 20))",
    "send(struct.pack('<I', 1 << 20)); time.sleep(0.05)",
    "send(struct.pack('<I', 10) + b'x')",
    "send(tagged('Finished', 'exit_code', b'\\x00'))",
    "send(tagged('Finished', 'exit_code', b'\\xcd\\xff\\xff'))",
    "send(tagged('Finished', 'exit_code', b'\\xd3' + b'\\xff' * 8))",
    "send(tagged('Finished', 'exit_code', text('x')))",
    "send(tagged('Finished', 'exit_code', b'\\x00') * 1000)",
    "send(tagged('WorkerExited'))",
    "send(tagged('WorkerForked', 'previous_status', b'\\xc0'))",
    "send(tagged('Killed')); send(tagged('Interrupted')); send(tagged('RootForked'))",
    "send(tagged('CpuTimeUsed', 'seconds', b'\\xcb' + struct.pack('>d', float('nan'))))",
    "send(tagged('Failed', 'reason', text('x')))",
    "send(tagged('Ready', 'missing', b'\\x90'))",
    "send(message(b'\\xdf\\xff\\xff\\xff\\xff'))",
    "send(message(b'\\x91' * 100_000))",
    "flood(tagged('Finished', 'exit_code', b'\\x00') * 2000)",
    "flood(tagged('Killed') * 2000)",
    "flood(message(b''))",
    "flood(message(bytes(1 << 20)))",
    "flood(struct.pack('<I', 1 << 20) + bytes(1 << 19))",
    "channel.close()",
    "channel.shutdown(socket.SHUT_WR)",
    "channel.shutdown(socket.SHUT_RDWR)",
    "os.dup2(0, channel.fileno())",
    "os.dup2(1, channel.fileno())",
    "ours, theirs = socket.socketpair(); os.dup2(ours.fileno(), channel.fileno())",
    "os.close(1); os.close(2); channel.close()",
    "channel.setblocking(False)",
    "channel.recv(1 << 20, socket.MSG_DONTWAIT | socket.MSG_PEEK) if select.select([channel], [], [], 0)[0] else None",
    "[os.close(n) for n in range(3, 300) if attempt(lambda: os.fstat(n)) == 'done']",
    "for _ in range(3000):\n    try: socket.send_fds(channel, [b'x'], [0, 1] * 100, socket.MSG_DONTWAIT)\n    "
    "except OSError: pass",
    "for _ in range(3000):\n    try: socket.send_fds(channel, [tagged('Killed')], [channel.fileno()] * 250, "
    "socket.MSG_DONTWAIT)\n"
    "    except OSError: pass",
]


def test_channel_abuse_never_breaks_server(box, enter, victim):
    server = server_of(box)
    before, descriptors = server.memory_info().rss, server.num_fds()

    def abuse(code):
        with contextlib.closing(Inside(box)) as attacker:
            attacker.do(FIND_THE_CHANNEL)
            seen = attacker.run(code, 1)
            assert seen.metadata.outcome is not Outcome.INFRASTRUCTURE
            assert 0 <= seen.exit_code <= 255
            # A forged end of a step may affect the next step.
            for _ in range(2):
                attacker.run("1", 1)
            attacker.reset()
            assert attacker.see("40 + 2") == 42
            with victims_turn:
                assert victim.see("kept", timeout=30) == "kept"
            assert server.is_running()

    victims_turn = threading.Lock()
    check_side_by_side(abuse, CHANNEL_ABUSES)
    assert server.memory_info().rss < before + (32 << 20)
    # Spare executors, with a few descriptors each, may have been missing at first. A leak would be hundreds.
    assert eventually(lambda: server.num_fds() <= descriptors + 40)
