"""A container without namespaces has one session at a time, whose border is the container."""

from __future__ import annotations

import contextlib

import pytest

from coding_gym import CodeInterpreter
from coding_gym.errors import SnapshotError
from coding_gym_server.protocol import Outcome
from tests.grading.judging import Judge
from tests.security.attack import Inside
from tests.security.test_own_processes import ATTACKS, check
from tests.support.plain_container import plain_container

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", params=[True, False], ids=["Landlock", "no Landlock"])
def box(docker_engine, request):
    with plain_container(landlock=request.param, transport="tcp") as box:
        isolation = box.health()["isolation"]
        assert (isolation["session_mounts"], isolation["landlock_abi"] > 0) == (False, request.param)
        yield box


@pytest.fixture
def has_landlock(box):
    return box.health()["isolation"]["landlock_abi"] > 0


@pytest.fixture
def attacker(box):
    with contextlib.closing(Inside(box)) as attacker:
        yield attacker


DIRECTORIES = ("/home/user", "/tmp", "/dev/shm")
CONTENTS = f"[name for path in {DIRECTORIES} for name in os.listdir(path) if name[0] != '.']"
LEAVE = f"""
    for path in {DIRECTORIES}:
        os.makedirs(f"{{path}}/left/deep")
        open(f"{{path}}/left/deep/file", "w").write("left")
        os.chmod(f"{{path}}/left", 0)
    subprocess.Popen(["sleep", "54321"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        os.fork() or time.sleep(54321)
        os._exit(0)
"""
OTHERS = """[
    line for path in glob.glob("/proc/[0-9]*/cmdline")
    for line in [open(path, "rb").read().decode(errors="replace")] if "54321" in line
]"""


def test_paths_are_those_of_sessions_with_namespaces(attacker):
    assert attacker.see("(os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'])") == ("/home/user", "/home/user", "/tmp")


def test_next_episode_finds_nothing(attacker):
    for _ in range(2):
        attacker.do(LEAVE)
        attacker.reset()
        assert (attacker.see(CONTENTS), attacker.see(OTHERS)) == ([], [])


def test_next_session_finds_nothing(box):
    for _ in range(3):
        with contextlib.closing(Inside(box)) as session:
            assert (session.see(CONTENTS), session.see(OTHERS)) == ([], [])
            session.do(LEAVE)


def test_second_session_is_refused_and_harms_none(box, attacker):
    attacker.do("kept = 'kept'; open('file', 'w').write('kept')")
    with contextlib.closing(box.connect()) as second:
        second.ask_step("open('file', 'w')")
        seen = second.wait(timeout=20).observation
        assert seen.metadata.outcome is Outcome.INFRASTRUCTURE
        assert "one session at a time" in seen.stderr
        assert attacker.see("(kept, open('file').read())") == ("kept", "kept")
        attacker.close()
        second.ask_step("import os; print(os.listdir())")
        assert second.wait(timeout=20).observation.stdout == "[]\n"


def test_submissions_run_beside_the_session(box, attacker, has_landlock):
    attacker.do("open('mine', 'w').write('mine')")
    look = """
import os
open("written", "w").close()
def attempt(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__
seen = [attempt(lambda: os.listdir(path)) for path in ("/home/user", "/tmp", "/dev/shm")]
seen.append(attempt(lambda: open("/home/user/mine").read()))
print(*seen, sep="\\n")
"""
    with contextlib.closing(box.connect()) as connection:
        for _ in range(2):
            graded = Judge(connection).asserts(look, "assert workspace.listdir() == ['written']")
            assert graded.outcome.value == "passed"
            assert not has_landlock or graded.stdout == "PermissionError\n" * 4
    assert attacker.see("os.listdir()") == ["mine"]
    assert not has_landlock or "PermissionError" in attacker.run("os.listdir('/workspaces')").stderr


def test_several_submissions_wait_for_each_other(box):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(box.connect())) for _ in range(3)]
        judges = [Judge(connection) for connection in connections]
        assert [judge.asserts("x = 1", "assert x == 1").outcome.value for judge in judges] == ["passed"] * 3


def test_snapshots_last_for_an_episode(box, attacker):
    attacker.do("open('file', 'w').write('before'); x = 'before'")
    snapshot = attacker._session.clone().snapshot
    attacker.do("open('file', 'w').write('after'); x = 'after'; open('/tmp/more', 'w')")
    attacker._session.ask_restore(snapshot)
    attacker.wait()
    assert attacker.see("(x, open('file').read(), os.path.exists('/tmp/more'))") == ("before", "before", False)
    attacker.reset()
    assert attacker.see(CONTENTS) == []
    attacker._session.ask_restore(snapshot)
    with pytest.raises(SnapshotError, match="lost"):
        attacker.wait()


def test_contexts_share_the_container(box):
    with (
        CodeInterpreter(box.address.url, token=box.address.token) as interpreter,
        contextlib.closing(box.connect()) as session,
    ):
        interpreter.execute("open('file', 'w').write('x')")
        second = interpreter.contexts.create()
        assert interpreter.execute("open('file').read()", context=second).text == "x"
        assert interpreter.files.read("file") == b"x"
        session.ask_step("1")
        assert "one session at a time" in session.wait(timeout=20).observation.stderr
        for context in interpreter.contexts.list():
            interpreter.contexts.delete(context)
        session.ask_step("import os; print(os.listdir())")
        assert session.wait(timeout=20).observation.stdout == "[]\n"


SIGNAL_WAYS = {
    "kill": "os.kill({pid}, {number})",
    "killpg": "os.killpg({pid}, {number}) if {pid} > 1 else os.kill(1, {number})",
    "tkill": "call('tkill', {pid}, {number})",
    "tgkill": "call('tgkill', {pid}, {pid}, {number})",
    "sigqueue": "call('rt_sigqueueinfo', {pid}, {number}, info({number}))",
    "tgsigqueue": "call('rt_tgsigqueueinfo', {pid}, {pid}, {number}, info({number}))",
    "pidfd": "call('pidfd_send_signal', os.pidfd_open({pid}), {number}, 0, 0)",
}
TO_OTHERS = """
    def info(number):
        return struct.pack("iiiiii", number, 0, -1, 0, 0, 0) + bytes(104)
    def signal_others(action):
        own = {os.getpid()}
        return {
            str(attempt(lambda: action(int(pid), number)))
            for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in own for number in (0, 9, 15)
        }
"""


@pytest.mark.parametrize("way", SIGNAL_WAYS)
def test_signals_reach_no_other_process(attacker, way):
    attacker.do(TO_OTHERS)
    action = SIGNAL_WAYS[way].format(pid="pid", number="number")
    found = attacker.see(f"signal_others(lambda pid, number: {action})")
    assert found <= {"EPERM", "ESRCH"}


def test_descriptor_owner_signals_reach_no_process(attacker):
    attacker.do("""
        ours, theirs = socket.socketpair()
        attempt(lambda: fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL))
        for owner in (os.getppid(), -os.getpgid(os.getppid())):
            attempt(lambda: fcntl.fcntl(ours, fcntl.F_SETOWN, owner))
            attempt(lambda: fcntl.fcntl(ours, 15, struct.pack("ii", 1, os.getppid())))  # F_SETOWN_EX
            attempt(lambda: fcntl.ioctl(ours, 0x8902, struct.pack("i", owner)))  # SIOCSPGRP
            fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            theirs.send(b"x")
        kept = "kept"
    """)
    assert attacker.see("kept") == "kept"


OWN_SIGNALS = """
    received = []
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, lambda number, frame: received.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
    waiting = threading.Thread(target=lambda: signal.sigwait({signal.SIGALRM}))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    waiting.start()
    signal.pthread_kill(waiting.ident, signal.SIGALRM)
    waiting.join(10)
    received.append(waiting.is_alive())

    child = subprocess.Popen(["sleep", "60"])
    os.kill(child.pid, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGCONT)
    child.terminate()
    received.append(child.wait(10))

    group = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"], start_new_session=True)
    time.sleep(0.3)
    os.killpg(group.pid, signal.SIGKILL)
    received.append(group.wait(10))

    descriptor = os.pidfd_open((child := subprocess.Popen(["sleep", "60"])).pid)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    received.append(child.wait(10))
    received.append(subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode)
    received.append(subprocess.run(["timeout", "-s", "INT", "0.1", "sleep", "60"]).returncode)
    received.append(attempt(lambda: os.kill(2 ** 22 + 5, 0)))
    zombie = os.fork() or os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    received.append(attempt(lambda: os.kill(zombie, 0)))
"""


def test_own_signals_arrive(attacker):
    attacker.do(OWN_SIGNALS)
    assert attacker.see("received") == [10, 12, 15, False, -15, -9, -9, -15, 124, "ESRCH", "done"]


@pytest.mark.parametrize("name", ["itself", "all", "the parent", "the group"])
def test_signals_end_nothing_but_the_session(box, name):
    for number in ("SIGKILL", "SIGSTOP", "SIGTERM"):
        check(box, f"signal {number} to {name}")


@pytest.mark.parametrize(
    "name",
    ["rotating children", "siblings that sleep", "exit", "everything full, and dead", "no directories", "closed directories"],
)
def test_no_attack_on_own_processes_is_a_failure_of_the_sandbox(box, name):
    assert name in ATTACKS
    check(box, name)
