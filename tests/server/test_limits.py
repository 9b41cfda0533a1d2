"""Steps that run too long, die, print too much or exhaust memory are observations, and the session continues."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol import Outcome
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually, promptly

TIMEOUT = 0.3
MARKER = re.compile(r"\n\.\.\. \[(\d+) characters cut\] \.\.\.\n")


def assert_works(session, *, kept):
    """Assert that the next step runs, with or without the variables of the last one."""
    seen = session.run("'kept' in globals()")
    assert (seen.stdout, seen.exit_code, seen.metadata.outcome) == (f"{kept}\n", 0, Outcome.OK)
    assert not seen.metadata.state_lost


def run_into_timeout(session, code, timeout=TIMEOUT):
    session.run(
        "kept = 1; import ctypes, os, signal, subprocess, sys, threading, time; open('file', 'w').write('kept') and None"
    )
    with promptly(after=timeout):
        seen = session.run(code, timeout)
    assert seen.exit_code == 124
    assert seen.metadata.outcome is Outcome.TIMEOUT
    return seen


INTERRUPTIBLE = [
    "while True: pass",
    "time.sleep(60)",
    "threading.Event().wait()",
    "t = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start(); t.join()",
    "import re; re.match('(a+)+b', 'a' * 60)",
    "subprocess.run(['sleep', '60'])",
    "subprocess.run('while :; do :; done', shell=True)",
    "os.system('sleep 60')",
    "os.read(os.pipe()[0], 1)",
    "import asyncio; asyncio.run(asyncio.sleep(60))",
    "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "import multiprocessing as mp; mp.Process(target=time.sleep, args=(60,)).start(); mp.Queue().get()",
    "if os.fork() == 0:\n    while True: pass\nos.wait()",
    "10 ** 10 ** 9",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
    "signal.signal(signal.SIGINT, lambda *_: sys.exit(3)); time.sleep(60)",
    "signal.signal(signal.SIGINT, lambda *_: 1 / 0); time.sleep(60)",
    "try: time.sleep(60)\nexcept KeyboardInterrupt: pass",
    "try: time.sleep(60)\nfinally: print('cleaned up')",
    "class S:\n    def __repr__(self): time.sleep(60)\nS()",
    "sys.excepthook = lambda *_: time.sleep(60)\n1 / 0",
]

UNINTERRUPTIBLE = [
    "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)",
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "for s in set(signal.Signals) - {9, 19}: signal.signal(s, lambda *_: None)\nwhile True: pass",
    "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(60)",
    "while True:\n    try: time.sleep(60)\n    except KeyboardInterrupt: print('swallowed')",
    "def f():\n    try: f()\n    finally: f()\nf()",
    "try: time.sleep(60)\nfinally: time.sleep(60)",
    "ctypes.CDLL(None).signal(2, 1); ctypes.CDLL(None).sleep(60)",
    "sum(range(10 ** 15))",
    "import hashlib; hashlib.pbkdf2_hmac('sha1', b'', b'', 10 ** 9)",
    "os.kill(os.getpid(), signal.SIGSTOP)",
    "os.kill(0, signal.SIGSTOP)",
    "for _ in range(3):\n    if os.fork() == 0: break\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass",
    "try: subprocess.Popen(['sh', '-c', 'trap \"\" INT; sleep 60']).wait()\nfinally: time.sleep(60)",
    "sys.setswitchinterval(1e9); threading.Thread(target=sum, args=(range(10 ** 15),)).start(); time.sleep(60)",
]


def test_timeout_of_interruptible_code_keeps_namespace(check_on_sessions):
    def check(session, code):
        seen = run_into_timeout(session, f"print('before')\n{code}")
        assert seen.stdout.startswith("before\n")
        assert not seen.metadata.state_lost
        assert seen.stderr.endswith(f"[timed out after {TIMEOUT:g} s; variables are kept]\n")
        assert "coding_gym_server" not in seen.stderr
        assert_works(session, kept=True)

    check_on_sessions(check, INTERRUPTIBLE)


def test_timeout_of_uninterruptible_code_loses_namespace(check_on_sessions):
    def check(session, code):
        seen = run_into_timeout(session, f"print('before')\n{code}")
        assert seen.stdout.startswith("before\n")
        assert seen.metadata.state_lost
        assert seen.stderr.endswith(f"[timed out after {TIMEOUT:g} s; variables are lost, files are kept]\n")
        assert "coding_gym_server" not in seen.stderr
        assert_works(session, kept=False)
        assert session.run("open('file').read()").stdout == "'kept'\n"

    check_on_sessions(check, UNINTERRUPTIBLE)


@pytest.mark.every_provider
def test_timeout_kills_background_processes(session):
    session.run("import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True); print(p.pid, end='')")
    session.run("print(p.pid, end='', file=open('pid', 'w'))")
    run_into_timeout(session, "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)")
    assert session.run("import os; os.path.exists('/proc/' + open('pid').read())").stdout == "False\n"


def test_reset_sets_default_step_timeout(session):
    session.reset(step_timeout=TIMEOUT)
    with promptly(after=TIMEOUT):
        assert session.run("while True: pass", timeout=None).exit_code == 124
    assert session.run("import time; time.sleep(0.6)", timeout=10).exit_code == 0


def test_late_interrupt_never_hits_next_step(session):
    session.run("kept = 1; import time")
    for _ in range(10):
        assert session.run("time.sleep(0.0195)", timeout=0.02).exit_code in (0, 124)
        assert_works(session, kept=True)


@pytest.mark.every_provider
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import multiprocessing as mp\ndef spin():\n    while True: pass\n"
        "for _ in range(2): mp.Process(target=spin, daemon=True).start()\n"
        "import time; time.sleep(60)",
        "import subprocess; subprocess.run('while :; do :; done', shell=True)",
        "import subprocess\nwhile True: subprocess.run(['python', '-c', 'sum(range(10**6))'])",
        "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start(); spin()",
    ],
)
def test_cpu_timeout_ends_step(session, code):
    session.reset(cpu_timeout=0.3)
    with promptly(after=0.1):
        seen = session.run(f"print('before', flush=True)\n{code}", 60)
    assert (seen.exit_code, seen.metadata.outcome) == (124, Outcome.TIMEOUT)
    assert seen.stdout.startswith("before\n")
    assert "CPU" in seen.stderr
    assert session.run("1").stdout == "1\n"


def test_cpu_timeout_ignores_sleep_and_earlier_steps(session):
    session.reset(cpu_timeout=0.3)
    assert session.run("import time; time.sleep(0.6); print('slept')").stdout == "slept\n"
    for _ in range(4):
        assert session.run("t = time.process_time()\nwhile time.process_time() < t + 0.12: pass").exit_code == 0


@pytest.mark.every_provider
def test_cpu_timeout_ignores_processes_of_clients(session):
    session.reset(cpu_timeout=0.3)
    burn = "timeout 0.4 sh -c 'while :; do :; done'"
    # Those that run during the step, those that end in it, and their orphans.
    with session.http.processes.start(f"{burn}; ({burn} &); {burn}") as process:
        assert session.run("import time; time.sleep(1.2); print('slept')").stdout == "slept\n"
        process.kill()
    with session.http.processes.start(f"({burn} &)") as process:
        process.wait()
        assert session.run("import time; time.sleep(0.7); print('slept')").stdout == "slept\n"
    assert session.run("while True: pass").exit_code == 124


def test_wall_timeout_applies_despite_cpu_timeout(session):
    session.reset(cpu_timeout=60)
    assert run_into_timeout(session, "while True: pass").stderr.count("timed out") == 1


DEATHS = {
    "ctypes.string_at(0)": 139,
    "os._exit(0)": 0,
    "os._exit(3)": 3,
    "os.abort()": 134,
    "os.kill(os.getpid(), 9)": 137,
    "os.kill(os.getpid(), 11)": 139,
    "os.kill(os.getpid(), 15)": 143,
    "os.killpg(0, 9)": 137,
    "os.killpg(0, 15)": 143,
    "os.execvp('sh', ['sh', '-c', 'exit 5'])": 5,
    "os.execvp('true', ['true'])": 0,
    "import threading; threading.Thread(target=os._exit, args=(4,)).start(); import time; time.sleep(60)": 4,
    "import signal; signal.setitimer(signal.ITIMER_REAL, 0.05); import time; time.sleep(60)": 142,
    "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); exec('while True: pass')": 137,
    "import subprocess; subprocess.run(f'kill -9 {os.getpid()}; sleep 60', shell=True)": 137,
    "import faulthandler; faulthandler._sigsegv()": 139,
    "os.fork() and os._exit(6); import time; time.sleep(60)": 6,
}


@pytest.mark.every_provider
def test_interpreter_death_loses_variables_keeps_files(check_on_sessions):
    def check(session, code):
        session.run("kept = 1; import ctypes, os; open('file', 'w').write('kept'); os.makedirs('d/e')")
        seen = session.run(f"print('before')\n{code}")
        assert (seen.stdout, seen.exit_code, seen.metadata.outcome) == ("before\n", DEATHS[code], Outcome.KILLED)
        assert seen.metadata.state_lost
        died = f"[the interpreter died with exit code {DEATHS[code]}; variables are lost, files are kept]\n"
        assert seen.stderr.endswith(died)
        assert_works(session, kept=False)
        left = session.run("import os; open('file').read(), os.listdir('d'), os.path.basename(os.getcwd())")
        assert left.stdout.startswith("('kept', ['e']")

    check_on_sessions(check, DEATHS)


def test_child_death_keeps_session_alive(session):
    session.run("kept = 1")
    assert session.run("import os\nif (pid := os.fork()) == 0: os.abort()\nos.waitpid(pid, 0)[1] & 127").stdout == "6\n"
    assert_works(session, kept=True)


@pytest.mark.parametrize("wait", [0, 0.3])
def test_interpreter_death_between_steps_loses_variables(session, wait):
    session.run("kept = 1; import os, threading, time; open('file', 'w').write('kept') and None")
    session.run("threading.Timer(0.1, lambda: (print('last words', flush=True), os._exit(3))).start()")
    time.sleep(wait)
    seen = session.run("import time; time.sleep(0.5); print('kept' in globals())")
    if wait:
        assert (seen.stdout[-6:], seen.exit_code, seen.metadata.outcome) == ("False\n", 0, Outcome.OK)
    else:
        assert (seen.exit_code, seen.metadata.outcome) == (3, Outcome.KILLED)
    assert "last words" in seen.stdout
    assert seen.metadata.state_lost
    assert "died" in seen.stderr
    assert_works(session, kept=False)
    assert session.run("open('file').read()").stdout == "'kept'\n"


def test_death_with_removed_directories_is_survived(session):
    # Directories that are mount points cannot be removed.
    for action in ("shutil.rmtree(os.getcwd())", "(os.chdir('..'), os.chmod('.', 0))", "shutil.rmtree(os.environ['HOME'])"):
        session.run(f"import os, shutil\ntry: {action}\nfinally: os._exit(1)")
    seen = session.run("open('x', 'w').write('abc')")
    assert (seen.stdout, seen.metadata.outcome, seen.metadata.state_lost) == ("3\n", Outcome.OK, False)


TAMPERING = [
    "os.closerange(3, 4096)",
    "os.closerange(0, 4096)",
    "for fd in range(3, 1024):\n    try: os.write(fd, b'garbage')\n    except OSError: pass",
    "for fd in range(3, 1024):\n    try: os.write(fd, b'\\xff' * 64)\n    except OSError: pass",
    "for fd in range(3, 1024):\n    try: os.write(fd, (100).to_bytes(4, 'little'))\n    except OSError: pass",
    "for fd in range(3, 1024):\n    try: os.write(fd, b'\\0' * 4096)\n    except OSError: pass",
    "for fd in range(3, 1024):\n    try: os.write(fd, b'\\x02\\0\\0\\0\\x90\\x80')\n    except OSError: pass",
    "for fd in range(3, 1024):\n    try: os.dup2(1, fd)\n    except OSError: pass",
    "import socket\nfor fd in range(200, 210):\n    try: socket.socket(fileno=os.dup(fd)).shutdown(2)\n    except: pass",
    "for fd in range(200, 210):\n    try: os.set_blocking(fd, False)\n    except OSError: pass",
    "for fd in range(200, 210):\n    try: os.set_blocking(fd, False); print(os.read(fd, 100))\n    except OSError: pass",
]


@pytest.mark.every_provider
def test_descriptor_tampering_is_survived(check_on_sessions, open_session):
    def check(session, code):
        session.run("import os")
        seen = session.run(code, timeout=1)
        assert seen.metadata.outcome is not Outcome.INFRASTRUCTURE
        assert "coding_gym_server" not in seen.stderr
        session.run("1", timeout=1)
        time.sleep(0.05)
        session.run("1", timeout=1)
        seen = session.run("print('works')")
        assert (seen.stdout, seen.exit_code) == ("works\n", 0)

    other = open_session()
    other.run("kept = 1")
    check_on_sessions(check, TAMPERING)
    assert_works(other, kept=True)


def test_forged_answer_affects_only_its_step(session):
    forge = (
        "import msgspec, os\nbody = msgspec.msgpack.encode({'type': 'Finished', 'exit_code': 42})\n"
        "for fd in range(3, 1024):\n    try: os.write(fd, len(body).to_bytes(4, 'little') + body)\n    except OSError: pass"
    )
    session.run(forge)
    time.sleep(0.05)
    assert session.run("print('a')").stdout.endswith("a\n")
    assert session.run("print('b')").stdout == "b\n"


@pytest.mark.every_provider
@pytest.mark.parametrize("code", ["os.kill(-1, 9)", "os.kill(-1, 15)", "subprocess.run('kill -9 -1', shell=True)"])
def test_kill_all_leaves_other_sessions_unaffected(session, open_session, code):
    other = open_session()
    other.run("kept = 1; import subprocess; p = subprocess.Popen(['sleep', '60'])")
    session.run(f"import os, subprocess\n{code}", timeout=2)
    assert session.run("print('works')").stdout == "works\n"
    assert_works(other, kept=True)
    assert other.run("print(p.poll())").stdout == "None\n"


@pytest.mark.every_provider
def test_user_code_runs_at_lower_priority(session, sandbox):
    # Otherwise, a hundred busy processes could keep the server from ending them.
    assert int(session.run("import os; print(os.nice(0))").stdout) > server_of(sandbox).nice()
    assert session.run("print(os.sched_getscheduler(0) == os.SCHED_BATCH)").stdout == "True\n"


def test_step_that_ended_in_time_is_kept_if_server_is_late(session, sandbox):
    session.run("import time; kept = 1")
    server = server_of(sandbox)
    # The server stops in the grace period, before the end of the step, and finds at once that both have ended.
    stopper = threading.Timer(0.5, server.suspend)
    resumer = threading.Timer(2, server.resume)
    for timer in (stopper, resumer):
        timer.start()
    try:
        seen = session.run("try: time.sleep(60)\nexcept KeyboardInterrupt: time.sleep(0.3)", timeout=0.3)
    finally:
        stopper.join()
        resumer.join()
    assert (seen.metadata.outcome, seen.metadata.state_lost) == (Outcome.TIMEOUT, False)
    assert_works(session, kept=True)


@pytest.mark.every_provider
def test_session_root_cannot_be_signalled(session):
    seen = session.run("import os; os.kill(os.getppid(), 9)")
    assert seen.metadata.outcome in (Outcome.OK, Outcome.ERROR)
    assert session.run("print('works')").stdout == "works\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("unit", ["x", "é", "漢", "😀", "aé漢😀"])
@pytest.mark.parametrize("total", [257, 5_000, 100_003, 1_000_000])
def test_long_output_is_truncated_in_middle(session, stream, unit, total):
    limit = 256
    session.reset(max_output_chars=limit)
    text = (unit * total)[:total]
    seen = session.run(f"import sys; text = ({unit!r} * {total})[:{total}]; print(text, end='', file=sys.{stream})")
    shown = getattr(seen, stream)
    assert len(shown) <= limit
    head, cut, tail = MARKER.split(shown)
    assert int(cut) == total - len(head) - len(tail)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert min(len(head), len(tail)) > limit // 2 - 40
    assert getattr(seen, "stderr" if stream == "stdout" else "stdout") == ""


@pytest.mark.parametrize("unit", ["x", "漢", "😀"])
@pytest.mark.parametrize("limit", [256, 300, 16_384])
def test_output_at_limit_is_not_truncated(session, unit, limit):
    session.reset(max_output_chars=limit)
    assert session.run(f"print({unit!r} * {limit}, end='')").stdout == unit * limit
    cut = session.run(f"print({unit!r} * {limit}, end='!')").stdout
    assert len(cut) <= limit
    assert MARKER.search(cut)


def test_100_mb_print_is_truncated(session):
    seen = session.run("print('x' * 100_000_000)")
    head, cut, tail = MARKER.split(seen.stdout)
    assert int(cut) + len(head) + len(tail) == 100_000_001
    assert (set(head), tail[-1], len(seen.stdout) <= 16_384) == ({"x"}, "\n", True)


def test_many_small_prints_are_truncated_in_middle(session):
    seen = session.run("for i in range(200_000): print(i)")
    head, cut, tail = MARKER.split(seen.stdout)
    assert head.startswith("0\n1\n2\n")
    assert tail.endswith("\n199998\n199999\n")
    assert int(cut) + len(head) + len(tail) == sum(len(f"{i}\n") for i in range(200_000))


@pytest.mark.every_provider
@pytest.mark.parametrize("code", ["subprocess.run(['yes'])", "subprocess.run('yes >&2', shell=True)", "while True: print('y')"])
def test_output_flood_until_timeout_is_truncated(session, open_session, code):
    other = open_session()
    other.run("1")
    session.run("import subprocess")
    session.begin(code, 0.5)
    time.sleep(0.2)
    with promptly():
        assert other.run("1").stdout == "1\n"
    seen = session._session.wait(timeout=30).observation
    assert (seen.exit_code, seen.metadata.outcome) == (124, Outcome.TIMEOUT)
    assert len(MARKER.findall(seen.stdout + seen.stderr)) == 1
    assert max(len(seen.stdout), len(seen.stderr)) <= 16_384
    assert session.run("1").stdout.endswith("1\n")


def test_child_output_between_steps_is_captured(session):
    session.run("import subprocess, time; p = subprocess.Popen('while :; do echo tick; sleep 0.01; done', shell=True)")
    ticks = itertools.accumulate(session.run("p.poll()").stdout.count("tick\n") for _ in itertools.count())
    assert eventually(lambda: next(ticks) > 5)
    assert session.run("p.kill(); p.wait(); None").exit_code == 0
    session.run("time.sleep(0.05)")
    assert session.run("1").stdout == "1\n"


def test_child_flood_between_steps_is_truncated(session):
    session.run("import subprocess; p = subprocess.Popen(['yes'])")
    time.sleep(0.2)
    with promptly():
        for _ in range(3):
            assert len(session.run("1", 60).stdout) <= 16_384
    session.run("p.kill(); p.wait()")
    session.run("1")
    assert session.run("1").stdout == "1\n"


def test_step_ends_while_child_holds_pipes(session):
    with promptly():
        assert session.run("import subprocess; p = subprocess.Popen(['sleep', '90']); print('done')", 60).stdout == "done\n"


@pytest.fixture(scope="module")
def small_sandbox(provider):
    with lasting_sandbox(provider=provider, sessions=2, mem="512m", disk="64m") as sandbox:
        yield sandbox


@pytest.mark.every_provider
@pytest.mark.parametrize("code", ["x = b'x' * (1 << 30)", "x = []\nwhile True: x.append(b'x' * (8 << 20))"])
def test_memory_exhaustion_affects_only_its_session(connect, small_sandbox, code):
    session, other = connect(small_sandbox), connect(small_sandbox)
    other.run("kept = 1")
    seen = session.run(f"print('before', flush=True)\n{code}", timeout=20)
    assert seen.stdout == "before\n"
    if "MemoryError" in seen.stderr:
        assert (seen.exit_code, seen.metadata.outcome, seen.metadata.state_lost) == (1, Outcome.ERROR, False)
    else:
        assert (seen.exit_code, seen.metadata.outcome, seen.metadata.state_lost) == (137, Outcome.MEMORY, True)
        assert "[killed: out of memory" in seen.stderr
    session.run("x = None")
    assert session.run("print('works')").stdout == "works\n"
    assert_works(other, kept=True)


RECURSION = [
    "sys.setrecursionlimit(10 ** 9)\ndef f(n): return f(n + 1)\nf(0)",
    "sys.setrecursionlimit(10 ** 6)\nx = []\nfor _ in range(500_000): x = [x]\nrepr(x)",
]


@pytest.mark.every_provider
def test_unlimited_recursion_is_survived(check_on_sessions):
    def check(session, code):
        seen = session.run(f"import sys\n{code}", timeout=1)
        assert seen.exit_code != 0
        assert seen.metadata.outcome is not Outcome.INFRASTRUCTURE
        assert session.run("print('works')").stdout == "works\n"

    check_on_sessions(check, RECURSION)


@pytest.mark.every_provider
def test_full_disk_is_an_observation(connect, small_sandbox):
    session = connect(small_sandbox)
    seen = session.run("with open('big', 'wb') as f:\n    while True: f.write(b'x' * (4 << 20))", timeout=20)
    assert re.search(r"No space left on device|File too large", seen.stderr)
    assert (seen.exit_code, seen.metadata.state_lost) == (1, False)
    assert session.run("import os; os.remove('big'); print(open('small', 'w').write('x'))").stdout == "1\n"


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel does not limit the processes of uid 0")
def test_process_limit_excludes_other_user_processes(connect):
    done = threading.Event()
    for _ in range(300):
        threading.Thread(target=done.wait, daemon=True).start()
    try:
        config = SandboxConfig(provider="local", preload=(), pids_limit=64)
        with contextlib.closing(start_sandbox(config)) as sandbox:
            assert connect(sandbox).run("import os; os.system('echo works')").stdout == "works\n0\n"
    finally:
        done.set()
