"""The seccomp filter: refused and permitted system calls, on both architectures."""

from __future__ import annotations

import contextlib
import errno
import platform
import re
from pathlib import Path

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.isolation import seccomp
from tests.security.attack import Inside
from tests.security.system_calls import AARCH64, NUMBERS, X86_64
from tests.support.sandbox_processes import server_of

pytestmark = pytest.mark.every_provider

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCHITECTURES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
ONLY_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="requires x86_64")

REFUSED = frozenset(
    """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd migrate_pages move_pages
    shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink add_key
    request_key keyctl bpf userfaultfd perf_event_open fanotify_init lookup_dcookie io_uring_setup io_uring_enter
    io_uring_register unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig
    fsmount fspick mount_setattr name_to_handle_at open_by_handle_at quotactl quotactl_fd acct swapon swapoff reboot
    kexec_load kexec_file_load init_module finit_module delete_module syslog iopl ioperm modify_ldt uselib settimeofday
    clock_settime vhangup io_setup
    """.split()  # noqa: SIM905
)
CHANGING_MODES = frozenset(
    """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr
    fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
    """.split()  # noqa: SIM905
)
CONDITIONAL = frozenset(
    """
    clone clone3 ioctl fcntl prlimit64 setpriority ioprio_set socket socketpair sched_setaffinity sched_setscheduler
    sched_setparam sched_setattr inotify_init inotify_init1
    """.split()  # noqa: SIM905
)


# The BPF program, interpreted by this module


def decide(program, architecture, number, *arguments):
    """Run a classic BPF program on a ``struct seccomp_data``."""
    words = [number, architecture, 0, 0]
    for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]:
        words += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    accumulator, position = 0, 0
    for _ in range(len(program)):
        code, then, otherwise, value = program[position]
        position += 1
        match code:
            case 0x20:
                accumulator = words[value // 4]
            case 0x15:
                position += then if accumulator == value else otherwise
            case 0x35:
                position += then if accumulator >= value else otherwise
            case 0x45:
                position += then if accumulator & value else otherwise
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
    raise AssertionError("the program does not end")


@pytest.fixture(params=ARCHITECTURES)
def machine(request, monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: request.param)
    return ARCHITECTURES[request.param]


@pytest.fixture
def verdict(machine):
    architecture, numbers = machine
    program = seccomp._program(internet=False, inotify=False)

    def verdict(name, *arguments):
        answer = decide(program, architecture, numbers[name] if isinstance(name, str) else name, *arguments)
        return "ok" if answer == ALLOW else errno.errorcode[answer - ERRNO]

    return verdict


@pytest.mark.parametrize("arguments", [(), (1, 2, 3), (2**64 - 1,) * 6, (2**32,) * 6], ids=["0", "1 2 3", "-1", "upper halves"])
@pytest.mark.parametrize("options", [(False, False), (True, True)], ids=["closed", "open"])
def test_filter_decides_every_system_call_correctly(machine, options, arguments):
    architecture, numbers = machine
    program = seccomp._program(internet=options[0], inotify=options[1])
    names = {number: name for name, number in numbers.items()}
    for number in range(1001):
        name = names.get(number)
        if name not in CONDITIONAL:
            expected = ERRNO | errno.EPERM if name in REFUSED else ALLOW
            assert decide(program, architecture, number, *arguments) == expected, (number, name)


def test_changing_modes_can_be_forbidden_additionally(machine, monkeypatch):
    architecture, numbers = machine
    programs = []
    monkeypatch.setattr(seccomp, "_apply", programs.append)
    seccomp.forbid_changing_modes()
    names = {number: name for name, number in numbers.items()}
    for number in range(1001):
        expected = ERRNO | errno.EPERM if names.get(number) in CHANGING_MODES else ALLOW
        assert decide(programs[0], architecture, number) == expected, (number, names.get(number))
    for command in (0x40086602, 0x40087602, 0x401C5820, 0x40806685, 0x800C6613, 0x40086602 | 1 << 32):
        assert decide(programs[0], architecture, numbers["ioctl"], 3, command) == ERRNO | errno.EPERM


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (17,), "ok"),
        ("clone", (0x3D0F00,), "ok"),
        *(
            ("clone", (flag | 17,), "EPERM")
            for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
        ),
        ("clone", (1 << 40 | 0x10000000,), "EPERM"),
        ("clone3", (0,), "ENOSYS"),
        ("ioctl", (0, 0x5401), "ok"),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 0x541C), "EPERM"),
        ("ioctl", (0, 1 << 32 | 0x5412), "EPERM"),
        ("fcntl", (0, 1), "ok"),
        ("fcntl", (0, 1030), "ok"),
        ("fcntl", (0, 1033), "ok"),
        ("fcntl", (0, 1024), "EPERM"),
        ("fcntl", (0, 1026), "EPERM"),
        ("fcntl", (0, 1 << 32 | 1024), "EPERM"),
        ("prlimit64", (0, 7, 0x1000, 0), "ok"),
        ("prlimit64", (5, 7, 0, 0x1000), "ok"),
        ("prlimit64", (5, 7, 0x1000, 0), "EPERM"),
        ("prlimit64", (5, 7, 1 << 32, 0), "EPERM"),
        ("prlimit64", (1 << 32 | 5, 7, 0x1000, 0), "EPERM"),
        ("setpriority", (0, 0, 5), "ok"),
        ("setpriority", (1, 0, 5), "ok"),
        ("setpriority", (0, 5, 5), "EPERM"),
        ("setpriority", (1, 5, 5), "EPERM"),
        ("setpriority", (2, 0, 5), "EPERM"),
        ("setpriority", (1 << 32 | 2, 0, 5), "EPERM"),
        ("ioprio_set", (1, 0, 5), "ok"),
        ("ioprio_set", (1, 5, 5), "EPERM"),
        ("ioprio_set", (2, 5, 5), "EPERM"),
        ("ioprio_set", (3, 0, 5), "EPERM"),
        ("sched_setaffinity", (0, 8), "ok"),
        ("sched_setaffinity", (5, 8), "EPERM"),
        ("sched_setscheduler", (5, 8), "EPERM"),
        ("sched_setparam", (5, 8), "EPERM"),
        ("sched_setattr", (5, 8), "EPERM"),
        ("sched_setattr", (0, 8), "ok"),
        ("socket", (1, 1, 0), "ok"),
        ("socket", (1 << 32 | 1, 1, 0), "ok"),
        ("socket", (16, 3, 0), "ok"),
        *(("socket", (16, 3, protocol), "EPROTONOSUPPORT") for protocol in (*range(1, 23), 1 << 31)),
        *(("socket", (family, 1, 0), "EACCES") for family in (0, *range(2, 16), *range(17, 64), 2**31)),
        ("socket", (1 << 32 | 2, 1, 0), "EACCES"),
        ("socketpair", (1, 1, 0), "ok"),
        ("socketpair", (2, 1, 0), "EACCES"),
        ("socketpair", (30, 1, 0), "EACCES"),
    ],
)
def test_filter_checks_arguments(verdict, name, arguments, expected):
    assert verdict(name, *arguments) == expected


@pytest.mark.parametrize(("family", "expected"), [(1, ALLOW), (2, ALLOW), (10, ALLOW), (17, ERRNO | 13), (40, ERRNO | 13)])
def test_internet_option_allows_internet_families(machine, family, expected):
    architecture, numbers = machine
    assert decide(seccomp._program(internet=True, inotify=False), architecture, numbers["socket"], family, 1) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2, 1, 0), ALLOW),
        ((10, 0x80801, 6), ALLOW),
        ((1, 2, 0), ALLOW),
        *(((family, kind, 0), ERRNO | errno.EACCES) for family in (2, 10) for kind in (2, 3, 5, 0x80802)),
        *(((2, 1, protocol), ERRNO | errno.EACCES) for protocol in (17, 132, 262)),
        ((17, 1, 0), ERRNO | errno.EACCES),
        ((40, 1, 0), ERRNO | errno.EACCES),
    ],
)
def test_tcp_option_allows_only_tcp(machine, arguments, expected):
    architecture, numbers = machine
    program = seccomp._program(internet=False, inotify=False, tcp=True)
    assert decide(program, architecture, numbers["socket"], *arguments) == expected


def test_internet_can_be_forbidden_additionally(machine, monkeypatch):
    architecture, numbers = machine
    programs = []
    monkeypatch.setattr(seccomp, "_apply", programs.append)
    seccomp.forbid_internet()
    seccomp.forbid_fast_open()
    for family in range(64):
        expected = ERRNO | errno.EACCES if family in (2, 10) else ALLOW
        assert decide(programs[0], architecture, numbers["socket"], family, 1, 0) == expected
    # sendto, sendmsg, sendmmsg, and the positions of their flags.
    sending = (44, 46, 307) if numbers["socket"] == 41 else (206, 211, 269)
    for number, position in zip(sending, (3, 2, 3), strict=True):
        arguments = [2**32 - 1] * 6
        assert decide(programs[1], architecture, number, *arguments) == ERRNO | errno.EPERM
        arguments[position] ^= 0x20000000
        assert decide(programs[1], architecture, number, *arguments) == ALLOW


def test_only_own_scheduling_policy_is_allowed(machine):
    architecture, numbers = machine
    program = seccomp._program(internet=False, inotify=False)
    # Success without any effect.
    for policy in (0, 3):
        assert decide(program, architecture, numbers["sched_setscheduler"], 5, policy) == ERRNO
    for policy in (1, 2, 5, 6, 1 << 30):
        assert decide(program, architecture, numbers["sched_setscheduler"], 5, policy) == ERRNO | errno.EPERM
        assert decide(program, architecture, numbers["sched_setscheduler"], 0, policy) == ALLOW


@pytest.mark.parametrize(("inotify", "expected"), [(True, ALLOW), (False, ERRNO | errno.ENOSYS)])
def test_inotify_depends_on_option(machine, inotify, expected):
    architecture, numbers = machine
    assert decide(seccomp._program(internet=False, inotify=inotify), architecture, numbers["inotify_init1"]) == expected


@pytest.mark.parametrize("architecture", [0x40000003, 0xC000003E, 0xC00000B7, 0x40000028, 0, 0xFFFFFFFF])
def test_foreign_architecture_kills_process(machine, architecture):
    if architecture != machine[0]:
        assert decide(seccomp._program(internet=True, inotify=True), architecture, 0) == KILL


def test_x32_numbers_do_not_exist(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "x86_64")
    program = seccomp._program(internet=True, inotify=True)
    for number in (*range(1000), 0x3FFFFFFF):
        assert decide(program, 0xC000003E, 0x40000000 | number) == ERRNO | errno.ENOSYS


def test_jumps_stay_within_program(machine):
    program = seccomp._program(internet=True, inotify=False)
    assert len(program) <= 4096
    for position, (code, then, otherwise, _) in enumerate(program):
        assert 0 <= then <= 255
        assert 0 <= otherwise <= 255
        assert code == 0x06 or position + 1 + max(then, otherwise) < len(program)


def test_filter_is_unavailable_on_unknown_processor(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    assert not seccomp.is_available()


def test_system_call_numbers_agree_between_tables():
    tables = {**seccomp._FORBIDDEN, **seccomp._CHANGING_MODES, **seccomp._OWN_PID_ONLY}
    assert {name: NUMBERS[name] for name in tables} == {name: tuple(call) for name, call in tables.items()}


# The filter in the kernel


@pytest.fixture(scope="module")
def inside(box):
    with contextlib.closing(Inside(box)) as inside:
        yield inside


def filters_of(process):
    return int(re.search(r"Seccomp_filters:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])


def test_server_is_filtered(box):
    server = server_of(box)
    # Its parent has the engine's filter, or none.
    assert filters_of(server) == filters_of(server.parent()) + 1


HERE = sorted(name for name in REFUSED if NUMBERS[name][platform.machine() == "aarch64"] >= 0)


@pytest.fixture(scope="module")
def ways(inside):
    inside.do("""
        def in_thread(action):
            results = []
            thread = threading.Thread(target=lambda: results.append(attempt(action)))
            thread.start()
            thread.join()
            return results[0]
        def in_child(action):
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, attempt(action).encode())
                os._exit(0)
            os.close(writer)
            with open(reader) as answer:
                os.wait()
                return answer.read()
        def in_program(name):
            program = "import ctypes, errno, sys; c = ctypes.CDLL(None, use_errno=True);" \\
                "r = c.syscall(*map(int, sys.argv[1:])); print('done' if r >= 0 else errno.errorcode[ctypes.get_errno()])"
            command = [sys.executable, "-c", program, str(NUMBERS[name]), *"00000"]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    """)
    return inside


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("way", ["attempt", "in_thread", "in_child"])
def test_kernel_refuses_forbidden_calls(ways, way, name):
    # Docker's own filter is applied first, and returns ENOSYS for some calls.
    assert ways.see(f"{way}(lambda: call({name!r}, 0, 0, 0, 0, 0))") in ("EPERM", "ENOSYS")


@pytest.mark.parametrize("name", ["ptrace", "shmget", "keyctl", "unshare", "bpf"])
def test_filter_survives_execve(ways, name):
    assert ways.see(f"in_program({name!r})") == "EPERM"


@pytest.mark.parametrize(
    "action",
    [
        "fcntl.ioctl(0, 0x5412, b'x')",
        "fcntl.ioctl(0, 0x541C, b'x')",
        "call('ioctl', 0, 1 << 32 | 0x5412, b'x')",
        "call('setpriority', 1 << 32 | 2, 0, 5)",
        "call('prlimit64', 1 << 32 | os.getppid(), 7, struct.pack('QQ', 9, 9), 0)",
        "call('socket', 1 << 32 | 2, 1, 0)",
        "call('clone', 1 << 40 | 0x10000000 | 17, 0, 0, 0, 0)",
        "call('fcntl', 0, 1 << 32 | 1024, 1)",
    ],
)
def test_upper_argument_halves_cannot_bypass_filter(inside, action):
    assert inside.attempt(action) in ("EPERM", "EACCES")


@ONLY_X86_64
@pytest.mark.parametrize("name", ["getpid", "ptrace", "mount", "socket"])
def test_x32_calls_are_refused(inside, name):
    assert inside.attempt(f"call(0x40000000 | NUMBERS[{name!r}], 0, 0, 0, 0)") == "ENOSYS"


@ONLY_X86_64
def test_32_bit_entry_kills_process(inside):
    # mov eax, 20 (getpid); int 0x80; ret
    inside.do("""
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
        enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        pid = os.fork()
        if pid == 0:
            enter()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
    """)
    assert inside.see("os.WIFSIGNALED(status) and os.WTERMSIG(status)") in (31, 11)


def test_filter_cannot_be_removed(inside):
    assert inside.see("libc.prctl(21, 0, 0, 0, 0)") == 2
    assert inside.see("libc.prctl(22, 0, 0, 0, 0)") == -1
    assert inside.see("libc.prctl(38, 0, 0, 0, 0)") == -1


# Permitted programs


PROGRAMS = {
    "threads": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool: result = "
    "sum(pool.map(abs, range(9))) == 36",
    "subprocess": "result = subprocess.run('echo hi | tr a-z A-Z', shell=True, capture_output=True).stdout == b'HI\\n'",
    "pool": "import multiprocessing as mp\nwith mp.Pool(2) as pool: result = pool.map(abs, [-1, -2]) == [1, 2]",
    "spawn": "import multiprocessing as mp\nwith mp.get_context('spawn').Pool(1) as pool: result = pool.map(abs, [-1]) == [1]",
    "manager": "import multiprocessing as mp\nwith mp.Manager() as m:\n    d = m.dict(a=1); result = d['a'] == 1",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory\ns = SharedMemory(create=True, size=9); "
    "s.buf[0] = 7\n"
    "t = SharedMemory(s.name); result = t.buf[0] == 7; t.close(); s.close(); s.unlink()",
    "locks": "import multiprocessing as mp\nq = mp.Queue(); q.put(1); result = q.get() == 1; q.close(); q.join_thread()",
    "asyncio": "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('true'); return await p.wait()\n"
    "result = asyncio.run(f()) == 0",
    "nice": "result = os.nice(1) == 11",
    "own limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
    "result = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256",
    "own priority": "os.setpriority(os.PRIO_PROCESS, 0, 12); result = os.getpriority(os.PRIO_PROCESS, 0) == 12",
    "affinity": "cpus = os.sched_getaffinity(0); os.sched_setaffinity(0, cpus); result = len(cpus) > 0",
    "own signals": "hits = []; signal.signal(signal.SIGUSR1, lambda *_: hits.append(1)); os.kill(os.getpid(), signal.SIGUSR1)\n"
    "result = hits == [1]",
    "child signals": "p = subprocess.Popen(['sleep', '9']); p.terminate(); result = p.wait() == -15",
    "timers": "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, .01); "
    "signal.pause(); result = True",
    "socketpair": "a, b = socket.socketpair(); a.send(b'x'); result = b.recv(1) == b'x'",
    "unix socket": "s = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen(); c = socket.socket(socket.AF_UNIX)\n"
    "c.connect('own'); s.accept()[0].send(b'x'); result = c.recv(1) == b'x'",
    "abstract socket": "s = socket.socket(socket.AF_UNIX); s.bind('\\0own'); s.listen(); c = socket.socket(socket.AF_UNIX)\n"
    "c.connect('\\0own'); result = True",
    "descriptor passing": "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); result = "
    "len(socket.recv_fds(b, 1, 1)[1]) == 1",
    "interfaces": "result = 'lo' in [name for _, name in socket.if_nameindex()]",
    "mmap": "m = mmap.mmap(-1, 4096); m[0] = 1; result = m[0] == 1",
    "memfd": "f = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.write(f, b'abc'); fcntl.fcntl(f, 1033, 1); result = "
    "os.fstat(f).st_size == 3",
    "eventfd": "import errno\ne = libc.eventfd(0, 0); os.write(e, bytes([1]) + bytes(7)); result = os.read(e, 8)[0] == 1",
    "epoll": "e = select.epoll(); r, w = os.pipe(); e.register(r); os.write(w, b'x'); result = e.poll(1) == [(r, 1)]",
    "signalfd": "result = libc.signalfd(-1, bytes(128), 0) >= 0",
    "timerfd": "result = libc.timerfd_create(1, 0) >= 0",
    "pidfd": "p = subprocess.Popen(['true']); result = os.waitid(os.P_PIDFD, os.pidfd_open(p.pid), os.WEXITED).si_pid == p.pid",
    "sqlite": "import sqlite3\ndb = sqlite3.connect('db'); db.execute('create table t(a)'); db.execute('insert into t "
    "values (1)')\n"
    "db.commit(); result = sqlite3.connect('db').execute('select a from t').fetchall() == [(1,)]",
    "ssl": "import ssl\nresult = ssl.create_default_context() is not None",
    "advisory locks": "f = open('lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); result = True",
    "pipes": "r, w = os.pipe(); result = fcntl.fcntl(w, 1031, 1 << 16) >= 1 << 16",
    "files as git makes them": "open('config.lock', 'x').write('x'); os.link('config.lock', 'backup'); "
    "os.rename('config.lock', 'config')\n"
    "os.makedirs('objects/aa'); os.chmod('config', 0o444); fd = os.open('objects/aa/b', os.O_CREAT | os.O_EXCL | os.O_WRONLY)\n"
    "os.fsync(fd); os.rename('objects/aa/b', 'objects/b'); result = sorted(os.listdir('objects')) == ['aa', 'b']",
    "own scripts": "open('script', 'w').write('#!/bin/sh\\necho ran'); os.chmod('script', 0o755)\n"
    "result = subprocess.run(['./script'], capture_output=True).stdout == b'ran\\n'",
    "copies": "import shutil\nopen('a', 'w').write('x'); os.utime('a', (1, 1)); shutil.copy2('a', 'b'); "
    "shutil.copytree('.', os.path.join(os.environ['TMPDIR'], 'all'))\n"
    "result = os.stat('b').st_mtime == 1",
    "archives": "import tarfile, shutil\nos.mkdir('d'); open('d/f', 'w').write('x'); os.chmod('d/f', 0o640); "
    "shutil.make_archive('x', 'gztar', 'd')\n"
    "tarfile.open('x.tar.gz').extractall('out', filter='data'); result = os.stat('out/f').st_mode & 0o777 == 0o640",
    "temporary files": "import tempfile\nwith tempfile.NamedTemporaryFile() as f, tempfile.TemporaryDirectory() as d: "
    "f.write(b'x'); result = True",
    "venv": "import venv\nvenv.create('env', with_pip=False); result = os.path.exists('env/bin/python')",
    "compiled code": "import compileall\nopen('m.py', 'w').write('x = 1'); import m; compileall.compile_file('m.py', "
    "quiet=1); result = m.x == 1",
    "faulthandler": "import faulthandler\nfaulthandler.enable(); faulthandler.disable(); result = True",
    "getrandom": "import secrets, uuid\nresult = len(secrets.token_bytes(9)) == 9 and uuid.uuid4() != uuid.uuid1()",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_programs_work(enter, name):
    inside = enter()
    inside.do(PROGRAMS[name])
    assert inside.see("bool(result)")


@pytest.mark.slow
def test_single_session_sandbox_supports_terminals(provider):
    with (
        contextlib.closing(start_sandbox(SandboxConfig(provider=provider, preload=()))) as sandbox,
        contextlib.closing(Inside(sandbox)) as inside,
    ):
        inside.do(
            "import pty, tty\nours, theirs = pty.openpty(); tty.setraw(theirs); os.write(ours, b'x'); found = "
            "os.read(theirs, 1)"
        )
        assert inside.see("found") == b"x"
        inside.do(
            "pid, fd = pty.fork()\nif pid == 0: os.execlp('sh', 'sh', '-c', 'tty')\nname = os.read(fd, 99); os.waitpid(pid, 0)"
        )
        assert inside.see("name").startswith(b"/dev/pts/")
        # TIOCSTI, which injects input, is refused even on its own terminal.
        assert inside.attempt("fcntl.ioctl(theirs, 0x5412, b'x')") == "EPERM"
        assert inside.attempt("call('inotify_init1', 0)") == "done"
