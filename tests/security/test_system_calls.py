"""The seccomp filter: refused and permitted system calls, on both architectures."""

from __future__ import annotations

import ast
import contextlib
import errno
import platform
import re
from pathlib import Path

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.isolation import seccomp
from tests.security.attack import TOOLS, Inside
from tests.security.system_calls import AARCH64, NUMBERS, X86_64
from tests.support.sandbox_processes import server_of

pytestmark = pytest.mark.every_provider

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ANSWERS = {ALLOW: "ok", ERRNO: "ok without effect"}
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
    clock_settime vhangup io_setup mincore cachestat
    """.split()  # noqa: SIM905
)
CONDITIONAL = frozenset(
    """
    clone clone3 ioctl fcntl prlimit64 setpriority ioprio_set socket socketpair sched_setaffinity sched_setscheduler
    sched_setparam
    sched_setattr open openat openat2 fadvise64 readahead madvise preadv2
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


@pytest.fixture
def machines(monkeypatch):
    """Function that makes this machine one of each architecture in turn, and yields its number and its system calls."""

    def machines():
        for name, machine in ARCHITECTURES.items():
            monkeypatch.setattr(seccomp.platform, "machine", lambda name=name: name)
            yield machine

    return machines


@pytest.fixture
def check(machines):
    """Function that checks the answers to system calls on each architecture."""

    def check(expected):
        found = {}
        for architecture, numbers in machines():
            program = seccomp._program()
            for name, *arguments in expected:
                answer = decide(program, architecture, numbers[name], *arguments)
                found[architecture, name, *arguments] = ANSWERS.get(answer) or errno.errorcode[answer - ERRNO]
        assert found == {(number, *call): answer for number, _ in ARCHITECTURES.values() for call, answer in expected.items()}

    return check


def test_filter_decides_every_system_call_correctly(machines):
    wrong = {}
    for architecture, numbers in machines():
        names = {number: name for name, number in numbers.items()}
        unconditional = [number for number in range(1001) if names.get(number) not in CONDITIONAL]
        program = seccomp._program()
        for arguments in ((), (1, 2, 3), (2**64 - 1,) * 6, (2**32,) * 6):
            for number in unconditional:
                answer = decide(program, architecture, number, *arguments)
                if answer != (ERRNO | errno.EPERM if names.get(number) in REFUSED else ALLOW):
                    wrong[architecture, number, names.get(number)] = arguments
    assert wrong == {}


def test_filter_checks_arguments(check):
    namespaces = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
    check(
        {
            ("clone", 17): "ok",
            ("clone", 0x3D0F00): "ok",
            **{("clone", flag | 17): "EPERM" for flag in namespaces},
            ("clone", 1 << 40 | 0x10000000): "EPERM",
            ("clone3", 0): "ENOSYS",
            ("ioctl", 0, 0x5401): "ok",
            ("ioctl", 0, 0x5412): "EPERM",
            ("ioctl", 0, 0x541C): "EPERM",
            ("ioctl", 0, 0x5423): "EPERM",
            ("ioctl", 0, 1 << 32 | 0x5412): "EPERM",
            ("fcntl", 0, 1): "ok",
            ("fcntl", 0, 1030): "ok",
            ("fcntl", 0, 1033): "ok",
            ("fcntl", 0, 1024): "EPERM",
            ("fcntl", 0, 1026): "EPERM",
            ("fcntl", 0, 1 << 32 | 1024): "EPERM",
            ("prlimit64", 0, 7, 0x1000, 0): "ok",
            ("prlimit64", 5, 7, 0, 0x1000): "ok",
            ("prlimit64", 5, 7, 0x1000, 0): "EPERM",
            ("prlimit64", 5, 7, 1 << 32, 0): "EPERM",
            ("prlimit64", 1 << 32 | 5, 7, 0x1000, 0): "EPERM",
            ("setpriority", 0, 0, 5): "ok",
            ("setpriority", 1, 0, 5): "ok",
            ("setpriority", 0, 5, 5): "EPERM",
            ("setpriority", 1, 5, 5): "EPERM",
            ("setpriority", 2, 0, 5): "EPERM",
            ("setpriority", 1 << 32 | 2, 0, 5): "EPERM",
            ("ioprio_set", 1, 0, 5): "ok",
            ("ioprio_set", 1, 5, 5): "EPERM",
            ("ioprio_set", 2, 5, 5): "EPERM",
            ("ioprio_set", 3, 0, 5): "EPERM",
            ("sched_setaffinity", 0, 8): "ok",
            ("sched_setaffinity", 5, 8): "EPERM",
            ("sched_setscheduler", 5, 8): "EPERM",
            ("sched_setparam", 5, 8): "EPERM",
            ("sched_setattr", 5, 8): "EPERM",
            ("sched_setattr", 0, 8): "ok",
            ("socket", 1, 1, 0): "ok",
            ("socket", 1 << 32 | 1, 1, 0): "ok",
            ("socket", 16, 3, 0): "ok",
            **{("socket", 16, 3, protocol): "EPROTONOSUPPORT" for protocol in (*range(1, 23), 1 << 31)},
            **{("socket", family, 1, 0): "EACCES" for family in (0, *range(3, 10), *range(11, 16), *range(17, 64), 2**31)},
            **{("socket", family, kind, 0): "ok" for family in (2, 10, 1 << 32 | 2) for kind in (1, 2, 0x80801, 0x80802)},
            **{("socket", family, kind, 0): "EPERM" for family in (2, 10) for kind in (0, 3, 4, 5, 6, 10, 0x80803)},
            **{("socket", family, kind, 255): "EPERM" for family in (2, 10, 1 << 32 | 2) for kind in (3, 1 << 32 | 3)},
            **{("socket", 2, 1, protocol): "ok" for protocol in (6, 1 << 32 | 6)},
            **{("socket", 10, 2, protocol): "ok" for protocol in (17, 58)},
            # DCCP, SCTP, UDP-Lite and MPTCP.
            **{("socket", 2, kind, protocol): "EPROTONOSUPPORT" for kind in (1, 2) for protocol in (33, 132, 136, 262)},
            ("socketpair", 1, 1, 0): "ok",
            ("socketpair", 30, 1, 0): "EACCES",
        }
    )


def test_only_own_scheduling_policy_is_allowed(check):
    others = (1, 2, 5, 6, 1 << 30)
    check(
        {
            **{("sched_setscheduler", 5, policy): "ok without effect" for policy in (0, 3)},
            **{("sched_setscheduler", 5, policy): "EPERM" for policy in others},
            **{("sched_setscheduler", 0, policy): "ok" for policy in others},
        }
    )


def test_page_cache_is_not_controlled(check):
    check(
        {
            ("openat2", -100, 0, 0, 24): "ENOSYS",
            **{("fadvise64", 3, 0, 0, advice): "ok without effect" for advice in (*range(8), 1 << 32 | 4)},
            ("readahead", 3, 0, 1 << 20): "ok without effect",
            **{("madvise", 0, 4096, advice): "ok without effect" for advice in (3, 20, 21, 1 << 32 | 21)},
            **{("madvise", 0, 4096, advice): "ok" for advice in (*range(3), *range(4, 20), 22, 23, 24, 25)},
            **{("preadv2", 3, 0, 1, 0, 0, flags): "ok" for flags in (0, 1, 2, 4, 0x10)},
            **{("preadv2", 3, 0, 1, 0, 0, flags): "ENOTSUP" for flags in (8, 9, 0x80, 0x88, 1 << 32 | 8)},
        }
    )


def test_server_may_control_page_cache(machines):
    calls = (
        ("openat", -100, 0, 0x14000),
        ("openat2",),
        ("fadvise64", 3, 0, 0, 4),
        ("madvise", 0, 0, 21),
        ("fcntl", 0, 4, 0x14000),
    )
    for architecture, numbers in machines():
        program = seccomp._program(page_cache=True)
        answers = {name: decide(program, architecture, numbers[name], *arguments) for name, *arguments in calls}
        assert answers == {name: ALLOW for name, *_ in calls}


def test_files_are_read_through_page_cache(machines):
    found = {}
    for name, (architecture, numbers) in zip(ARCHITECTURES, machines(), strict=True):
        direct = {"x86_64": 0x4000, "aarch64": 0x10000}[name]
        program = seccomp._program()
        for flags in (direct, direct | 0x80002, 1 << 32 | direct, 0x80002, 0x490800 & ~direct):
            calls = [("open", 0, flags), ("openat", -100, 0, flags), ("fcntl", 0, 4, flags), ("fcntl", 0, 1 << 32 | 4, flags)]
            for call in calls:
                if numbers.get(call[0], -1) >= 0:
                    answer = decide(program, architecture, numbers[call[0]], *call[1:])
                    found[name, *call] = answer == (ERRNO | errno.EINVAL if flags & direct else ALLOW)
        assert decide(program, architecture, numbers["fcntl"], 0, 2, direct) == ALLOW
    assert found
    assert [call for call, is_right in found.items() if not is_right] == []


def test_foreign_architecture_kills_process(machines):
    for own, _ in machines():
        program = seccomp._program()
        foreign = {0x40000003, 0xC000003E, 0xC00000B7, 0x40000028, 0, 0xFFFFFFFF} - {own}
        assert {architecture: decide(program, architecture, 0) for architecture in foreign} == dict.fromkeys(foreign, KILL)


def test_x32_numbers_do_not_exist(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "x86_64")
    program = seccomp._program()
    for number in (*range(1000), 0x3FFFFFFF):
        assert decide(program, 0xC000003E, 0x40000000 | number) == ERRNO | errno.ENOSYS


def test_jumps_stay_within_program(machines):
    for _ in machines():
        program = seccomp._program()
        assert len(program) <= 4096
        for position, (code, then, otherwise, _) in enumerate(program):
            assert 0 <= then <= 255
            assert 0 <= otherwise <= 255
            assert code == 0x06 or position + 1 + max(then, otherwise) < len(program)


def test_filter_is_unavailable_on_unknown_processor(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    assert not seccomp.is_available()


def test_system_call_numbers_agree_between_tables():
    tables = {**seccomp._FORBIDDEN, **seccomp._OWN_PID_ONLY}
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


def test_kernel_refuses_forbidden_calls(inside):
    inside.do(f"""
        def try_all():
            return {{name: attempt(lambda: call(name, 0, 0, 0, 0, 0)) for name in {HERE}}}
        def try_in_thread():
            results = []
            thread = threading.Thread(target=lambda: results.append(try_all()))
            thread.start()
            thread.join()
            return results[0]
        def try_in_child():
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, repr(try_all()).encode())
                os._exit(0)
            os.close(writer)
            with open(reader) as answer:
                os.wait()
                return eval(answer.read())
    """)
    found = {way: inside.see(f"{way}()") for way in ("try_all", "try_in_thread", "try_in_child")}
    assert {way: list(results) for way, results in found.items()} == dict.fromkeys(found, HERE)
    # Docker's own filter is applied first, and returns ENOSYS for some calls.
    refused = ("EPERM", "ENOSYS")
    assert {
        (way, name): result for way, results in found.items() for name, result in results.items() if result not in refused
    } == {}


def test_filter_survives_execve(inside):
    names = ("ptrace", "shmget", "keyctl", "unshare", "bpf")
    program = f"{TOOLS}\nprint({{name: attempt(lambda: call(name, 0, 0, 0, 0, 0)) for name in {names}}})"
    run = f"subprocess.run([sys.executable, '-c', {program!r}], capture_output=True, text=True)"
    assert ast.literal_eval(inside.see(f"{run}.stdout")) == dict.fromkeys(names, "EPERM")


def test_upper_argument_halves_cannot_bypass_filter(inside):
    found = inside.attempts(
        [
            "fcntl.ioctl(0, 0x5412, b'x')",
            "fcntl.ioctl(0, 0x541C, b'x')",
            "call('ioctl', 0, 1 << 32 | 0x5412, b'x')",
            "call('setpriority', 1 << 32 | 2, 0, 5)",
            "call('prlimit64', 1 << 32 | os.getppid(), 7, struct.pack('QQ', 9, 9), 0)",
            "call('socket', 1 << 32 | 2, 3, 255)",
            "call('clone', 1 << 40 | 0x10000000 | 17, 0, 0, 0, 0)",
            "call('fcntl', 0, 1 << 32 | 1024, 1)",
        ]
    )
    assert found == dict.fromkeys(found, "EPERM")


def test_session_cannot_control_page_cache(inside):
    inside.do("file = os.open(sys.executable, os.O_RDONLY)")
    found = inside.attempts(
        {
            "open": "os.open(sys.executable, os.O_RDONLY | os.O_DIRECT)",
            "later": "fcntl.fcntl(file, fcntl.F_SETFL, os.O_DIRECT)",
            "openat2": "call('openat2', -100, sys.executable.encode(), struct.pack('QQQ', os.O_DIRECT, 0, 0), 24)",
            "read": "os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)",
            "advice": "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)",
            "ahead": "call('readahead', file, 0, 1 << 20)",
            "mapped": "mmap.mmap(file, mmap.PAGESIZE, prot=mmap.PROT_READ).madvise(21)",
            "flags": "fcntl.fcntl(file, fcntl.F_SETFL, os.O_NONBLOCK)",
            "reading": "os.preadv(file, [bytearray(1)], 0)",
        }
    )
    done = dict.fromkeys(("advice", "ahead", "mapped", "flags", "reading"), "done")
    assert found == {"open": "EINVAL", "later": "EINVAL", "openat2": "ENOSYS", "read": "ENOTSUP", **done}


@ONLY_X86_64
def test_x32_calls_are_refused(inside):
    names = ("getpid", "ptrace", "mount", "socket")
    found = inside.attempts({name: f"call(0x40000000 | NUMBERS[{name!r}], 0, 0, 0, 0)" for name in names})
    assert found == dict.fromkeys(names, "ENOSYS")


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
    "nice": "before = os.nice(0); result = os.nice(1) == min(before + 1, 19)",
    "own limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
    "result = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256",
    "own priority": "os.setpriority(os.PRIO_PROCESS, 0, 19); result = os.getpriority(os.PRIO_PROCESS, 0) == 19",
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


def test_ordinary_programs_work(box):
    found = {}
    for name, program in PROGRAMS.items():
        with contextlib.closing(Inside(box)) as inside:
            seen = inside.run(f"{program}\nprint(bool(result))")
        found[name] = seen.stdout or seen.stderr
    assert found == dict.fromkeys(PROGRAMS, "True\n")


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
