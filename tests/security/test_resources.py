"""Resources that one session exhausts remain available to other sessions and to the server."""

from __future__ import annotations

import contextlib

import pytest

from coding_gym.errors import ProtocolError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Outcome
from tests.security.attack import Inside
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually, promptly

pytestmark = pytest.mark.every_provider

MEMORY = {"mem": "384m", "disk": "256m", "shm_size": "128m"}


@pytest.fixture(scope="module")
def box(provider):
    with lasting_sandbox(provider=provider, sessions=6, **MEMORY) as sandbox:
        yield sandbox


def assert_continues(box, victim):
    assert victim.see("kept") == "kept"
    assert victim.see("subprocess.run(['true']).returncode") == 0
    with contextlib.closing(Inside(box)) as new:
        assert new.see("6 * 7") == 42


# Memory


MEMORY_HOGS = {
    "heap": "x = []\nwhile True: x.append(bytearray(b'x') * (8 << 20))",
    "shared mapping": (
        "m = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)\nfor n in range(0, 1 << 30, 4096): m[n] = 1"
    ),
    # The kernel chooses its victim by resident memory, which excludes memfds.
    "memfd": "x = bytearray(b'x') * (64 << 20); f = os.memfd_create('x')\nwhile True: os.write(f, bytes(8 << 20))",
}


MANY_MEMORY_HOGS = """
    for n in range(40):
        if os.fork() == 0:
            x = bytearray(b"x") * (16 << 20)
            time.sleep(30)
    os.wait()
"""


def test_memory_hogs_leave_others_unaffected(box, provider, attacker, victim):
    def hog(name):
        seen = attacker.run(MEMORY_HOGS[name])
        if provider == "docker":
            assert seen.metadata.outcome is Outcome.MEMORY
            assert "out of memory" in seen.stderr
        else:
            assert "MemoryError" in seen.stderr
        assert_continues(box, victim)
        assert attacker.run("1").stdout == "1\n"
        attacker.reset()

    if provider == "local":
        # RLIMIT_DATA counts private memory only, and there is no other limit without a container.
        hog("heap")
    else:
        check_side_by_side(hog, MEMORY_HOGS, at_once=1)
        assert attacker.run(MANY_MEMORY_HOGS, 5).metadata.outcome is not Outcome.INFRASTRUCTURE
        attacker.reset()
        assert_continues(box, victim)


@pytest.mark.docker
def test_small_memory_hogs_never_kill_root(docker_engine):
    """The kernel kills the largest of the processes marked as victims, which exclude session roots and the server."""
    config = SandboxConfig(provider="docker", preload=("numpy", "pandas"), mem="384m", sessions=2)
    with contextlib.closing(start_sandbox(config)) as box, contextlib.closing(Inside(box)) as attacker:
        root = attacker.see("os.getppid()")
        hog = "for n in $(seq 40); do { x=$(head -c 8M /dev/zero | tr '\\0' x); sleep 5; } & done; wait"
        seen = attacker.run(f"os.execvp('sh', ['sh', '-c', {hog!r}])", 3)
        assert seen.metadata.outcome is not Outcome.INFRASTRUCTURE
        attacker.equip()
        assert attacker.see("os.getppid()") == root


def test_memory_cannot_be_locked(attacker, victim):
    attacker.do("m = mmap.mmap(-1, 256 << 20)\nlocked = libc.mlock(ctypes.addressof(ctypes.c_char.from_buffer(m)), 256 << 20)")
    limit = attacker.see("resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]")
    assert attacker.see("locked") == -1 or limit > 256 << 20


# Descriptors, pipes, signals


EXHAUSTING = {
    "descriptors": "try:\n    while True: held.append(os.dup(0))\nexcept OSError: pass",
    "pipes": "try:\n    while True: held += os.pipe()\nexcept OSError: pass",
    "pipes of many": (
        "for _ in range(4):\n    if os.fork() == 0:\n        try:\n            while True: held += os.pipe()\n"
        "        except OSError: time.sleep(60)\ntime.sleep(0.5)"
    ),
    "full pipes": (
        "try:\n    while True:\n        r, w = os.pipe(); held += (r, w); fcntl.fcntl(w, 1031, 1 << 20); "
        "os.set_blocking(w, False)\n        os.write(w, bytes(1 << 20))\nexcept OSError: pass"
    ),
    "epolls": "try:\n    while True: held.append(select.epoll())\nexcept OSError: pass",
    "timers": (
        "try:\n    while True: held.append(libc.timer_create(1, 0, bytes(8)) == 0 or 1 / 0)\nexcept ArithmeticError: pass"
    ),
    "signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {40})\nfor _ in range(100_000): libc.sigqueue(os.getpid(), 40, 0)",
}


def test_exhausted_kernel_resources_leave_others_unaffected(box, attacker, victim):
    def exhaust(name):
        attacker.do("held = []")
        attacker.run(EXHAUSTING[name])
        assert_continues(box, victim)
        attacker.reset()

    check_side_by_side(exhaust, EXHAUSTING, at_once=1)


def test_descriptors_in_flight_leave_others_unaffected(box, attacker, victim):
    """The kernel counts them per user, and compares the sum with the limit of each process."""

    def send(kind):
        attacker.do(f"""
            held, sent = [], 0
            try:
                while sent < 100_000:
                    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.{kind})
                    ours.setblocking(False)
                    held += (ours, theirs)
                    try:
                        while True:
                            socket.send_fds(ours, [b"x"], [0] * 253)
                            sent += 253
                    except BlockingIOError:
                        pass
            except OSError as error:
                found = errno.errorcode[error.errno]
        """)
        assert attacker.see("found") == "ETOOMANYREFS"
        victim.reset()
        victim.do("kept = 'kept'; open('file', 'w').write('kept')")
        assert_continues(box, victim)
        attacker.reset()

    check_side_by_side(send, ["SOCK_DGRAM", "SOCK_STREAM", "SOCK_SEQPACKET"], at_once=1)


# Output


def test_output_floods_leave_others_responsive(box, attacker, victim):
    attacker.begin("""
        for n in range(8):
            subprocess.Popen(["sh", "-c", f"yes >&{1 + n % 2}"])
        time.sleep(1)
    """)
    assert [victim.see("kept", timeout=30) for _ in range(50)] == ["kept"] * 50
    seen = attacker.wait()
    assert seen.metadata.outcome is Outcome.OK
    assert len(seen.stdout) <= 16_384
    assert len(seen.stderr) <= 16_384
    attacker.reset()
    assert_continues(box, victim)


# CPU


def test_busy_processes_leave_others_responsive(attacker, victim):
    attacker.do("busy = []")
    for number in (1, 2, 30):
        attacker.do(f"""
            while len(busy) < {number}:
                busy.append(os.fork())
                if busy[-1] == 0:
                    while True:
                        pass
        """)
        with promptly():
            assert [victim.see("kept") for _ in range(20)] == ["kept"] * 20
        assert attacker.see("[pid for pid in busy if os.waitpid(pid, os.WNOHANG) != (0, 0)]") == []
    attacker.reset()


# Disk


DISK_HOGS = {
    "blocks": "with open('hog', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "inodes": "os.mkdir('many')\nfor n in range(200_000): os.mknod(f'many/{n}')",
    "shared memory": "with open('/dev/shm/hog', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
}


@pytest.mark.docker
def test_disk_space_is_freed_with_session(docker_engine):
    """The sessions of a container share one disk: while it is full, others have no space, but only until it is emptied.

    The local provider limits the size of files, not the disk.
    """

    def fill(name):
        # A dedicated sandbox, because files are still being removed when the next attack would begin.
        sandbox = start_sandbox(SandboxConfig(provider="docker", preload=(), sessions=6, **MEMORY))
        with contextlib.closing(sandbox) as box, contextlib.closing(Inside(box)) as victim:
            victim.run("kept = 'kept'")
            with contextlib.closing(Inside(box)) as attacker:
                assert "No space left" in attacker.run(DISK_HOGS[name]).stderr
                assert victim.see("kept") == "kept"

            def is_there_again():
                with contextlib.suppress(ProtocolError, AssertionError):
                    assert_continues(box, victim)
                    with contextlib.closing(Inside(box)) as new:
                        written = new.see("[open(path, 'w').write('x' * 100_000) for path in ('new', '/dev/shm/new')]")
                        return written == [100_000] * 2

            assert eventually(is_there_again)

    check_side_by_side(fill, DISK_HOGS)
