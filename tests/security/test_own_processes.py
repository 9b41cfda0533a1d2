"""Whatever code does to its own processes is the end of the code, never a failure of the sandbox."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_gym.errors import SnapshotError
from coding_gym_server.protocol import Outcome
from tests.security.attack import Inside
from tests.support.side_by_side import check_side_by_side

pytestmark = pytest.mark.every_provider

STEP_TIMEOUT = 3.0
STEPS = 2

PRELUDE = r"""
def set_name(name):
    libc.prctl(15, name, 0, 0, 0)

def in_child(action, wait=False):
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    if wait:
        os.waitpid(pid, 0)
    return pid

def rotate(between=lambda: None, seconds=2):
    # Each process lives for a moment: whoever lists them finds other ones.
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            pass
        between()
    os._exit(0)

def fill(directory):
    for number in range(1000):
        try:
            with open(f"{directory}/fill{number}", "wb", 0) as file:
                while True:
                    file.write(bytes(1 << 20))
        except OSError as error:
            if number or error.errno != errno.ENOSPC:
                return

def fill_inodes(directory):
    try:
        for number in range(200_000):
            open(f"{directory}/inode{number}", "w").close()
    except OSError:
        pass
"""

NAMES = {
    "no text": rb"\xff\xfe",
    "the rest of a line of its status": rb") R 0 (",
    "a zombie": rb") Z 1 1 1",
    "only parentheses": rb")))((((",
    "capabilities": rb"CapPrm:\t0",
    "a line of capabilities": rb"\nCapPrm:\t0\n",
    "a state": rb"a\nState:\tZ",
    "the users of root": rb"\nUid:\t0\t0\t0",
    "lines": rb"\n\n\n\n\n",
    "nothing": rb"",
    "spaces": rb"   1 2 3 4 5 ",
}
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "SIGPENDING", "STACK")
NULL = "null = os.open('/dev/null', os.O_RDWR)\nfor n in range(256):\n    if n != null: attempt(lambda: os.dup2(null, n))"

ATTACKS = {
    **{f"named {name}": f"set_name(b'{raw.decode()}')" for name, raw in NAMES.items()},
    **{
        f"children named {name}": f"for _ in range(4): in_child(lambda: (set_name(b'{raw.decode()}'), time.sleep(60)))"
        for name, raw in NAMES.items()
    },
    **{
        f"a thread named {name}": (
            f"threading.Thread(target=lambda: (set_name(b'{raw.decode()}'), time.sleep(60)), daemon=True).start()"
        )
        for name, raw in NAMES.items()
    },
    "rotating children": "for _ in range(8): in_child(rotate)",
    "rotating children with names": r"for _ in range(8): in_child(lambda: rotate(lambda: set_name(b') R 1 (\xff')))",
    "rotating daemons": "for _ in range(8): in_child(lambda: (os.setsid(), rotate(os.setsid)))",
    "rotating deaf children": (
        "for n in set(range(1, 32)) - {9, 19}: signal.signal(n, signal.SIG_IGN)\nfor _ in range(8): in_child(rotate)"
    ),
    "the worker rotates": "rotate()",
    "rotating siblings": "for _ in range(200): call('clone', 0x8000 | 17, 0, 0, 0, 0) or os._exit(0)",
    "siblings that sleep": "for _ in range(4): call('clone', 0x8000 | 17, 0, 0, 0, 0) or (time.sleep(60), os._exit(0))",
    "vanishing programs": "for _ in range(100): subprocess.Popen(['true'])",
    "zombies": "for _ in range(30): in_child(lambda: None)",
    **{
        f"signal {number} to {name}": f"attempt(lambda: os.kill({target}, signal.{number}))\ntime.sleep(1)"
        for number in ("SIGKILL", "SIGTERM", "SIGSTOP", "SIGINT", "SIGHUP", "SIGSEGV", "SIGCONT", "SIGUSR1")
        for name, target in {"all": "-1", "the parent": "os.getppid()", "the group": "0", "itself": "os.getpid()"}.items()
    },
    "signals again and again": (
        "def strike():\n    for n in [signal.SIGSTOP, signal.SIGCONT] * 200: attempt(lambda: os.kill(-1, n))\nin_child(strike)"
    ),
    "a child that stops the worker": "me = os.getpid(); in_child(lambda: os.kill(me, signal.SIGSTOP), wait=True)",
    "a child that kills the worker": "me = os.getpid(); in_child(lambda: os.kill(me, signal.SIGKILL))\ntime.sleep(1)",
    "no signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(60)",
    "no descriptors": "os.closerange(0, 4096)",
    "no descriptors but the streams": "os.closerange(3, 4096)",
    "no descriptors, and sleep": "os.closerange(0, 4096); time.sleep(60)",
    "other descriptors": NULL,
    "other descriptors, and sleep": f"{NULL}\ntime.sleep(60)",
    "another program": "os.execlp('true', 'true')",
    "another program that fails": "os.execlp('false', 'false')",
    "another program that sleeps": "os.execlp('sleep', 'sleep', '60')",
    "another program that reads the channel": "os.execlp('sh', 'sh', '-c', 'for n in 3 4 5 6 7 8 9; do cat <&$n & done; wait')",
    "another interpreter": "os.execl(sys.executable, sys.executable, '-c', 'import time; time.sleep(60)')",
    "exit": "os._exit(0)",
    "exit with everything": "os._exit(255)",
    "abort": "os.abort()",
    "a fault": "ctypes.string_at(0)",
    "the first thread ends": "threading.Thread(target=time.sleep, args=(60,)).start(); call('exit', 0)",
    "the first thread ends, and nothing else does": (
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); call('exit', 7)"
    ),
    "not dumpable": "libc.prctl(4, 0, 0, 0, 0)",
    "not dumpable, and dead": "libc.prctl(4, 0, 0, 0, 0); os._exit(1)",
    "children that are not dumpable": "for _ in range(4): in_child(lambda: (libc.prctl(4, 0, 0, 0, 0), time.sleep(60)))",
    "a subreaper": "libc.prctl(36, 1, 0, 0, 0); in_child(lambda: in_child(lambda: time.sleep(60)))",
    "killed by the end of its parent": "libc.prctl(1, 9, 0, 0, 0)",
    "other sessions and groups": "attempt(os.setsid); attempt(lambda: os.setpgid(0, 0)); in_child(lambda: rotate(os.setsid))",
    "first victim of the kernel": "open('/proc/self/oom_score_adj', 'w').write('1000')",
    "the lowest priority": "os.nice(19); attempt(lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)))",
    **{
        f"limit of {name}": f"attempt(lambda: resource.setrlimit(resource.RLIMIT_{name}, (0, 0)))"
        if name != "SIGPENDING"
        else "attempt(lambda: resource.setrlimit(11, (0, 0)))"
        for name in LIMITS
    },
    "all limits": (
        "for n in range(16): attempt(lambda: resource.setrlimit(n, (0, 0)))\nattempt(os.fork); attempt(lambda: open('x', 'w'))"
    ),
    "full temporary files": "fill('/tmp')",
    "a full working directory": "fill('.')",
    "full directories": "fill_inodes('/tmp'); fill_inodes('.')",
    "everything full, and dead": "fill('/tmp'); fill('.'); os._exit(1)",
    "no directories": "import shutil; shutil.rmtree(os.getcwd(), ignore_errors=True); os._exit(1)",
    "closed directories": "os.chmod('.', 0); attempt(lambda: os.chmod('..', 0)); os._exit(1)",
    "a long sleep": "time.sleep(60)",
    "a long computation": "while True: pass",
    "threads": "for _ in range(100): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
}


def check(box, *names):
    """Attack a sandbox, and go on in the session, in a copy of its state, and in its next episode."""
    with contextlib.closing(Inside(box)) as attacker:
        # With a limit of CPU time, the time of the processes is measured, too.
        attacker.reset(cpu_timeout=2.0)
        attacker.do(PRELUDE)
        seen = [attacker.run("\n".join(ATTACKS[name] for name in names), STEP_TIMEOUT)]
        with contextlib.suppress(SnapshotError):
            attacker._session.ask_restore(attacker._session.clone().snapshot)
            attacker.wait()
        # Its processes may still be stopped, and its limits too low.
        seen += [attacker.run("print(1)", STEP_TIMEOUT) for _ in range(STEPS)]
        assert [observation.stderr for observation in seen if observation.metadata.outcome is Outcome.INFRASTRUCTURE] == []
        attacker.reset()
        assert attacker.see("6 * 7") == 42


def test_no_attack_on_own_processes_is_a_failure_of_the_sandbox(box, victim):
    check_side_by_side(lambda name: check(box, name), ATTACKS, at_once=3)


def test_nor_are_several_of_them(box):
    @settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(sorted(ATTACKS)), min_size=2, max_size=4, unique=True))
    def check_several(names):
        check(box, *names)

    check_several()
