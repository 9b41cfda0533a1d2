"""A container without namespaces has one session at a time, whose border is the container."""

from __future__ import annotations

import contextlib
import platform
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym import CodeInterpreter
from coding_gym.errors import SnapshotError
from coding_gym_server.protocol import Outcome, ResetOptions
from tests.grading.judging import Judge
from tests.security.attack import Inside
from tests.security.test_own_processes import ATTACKS, check
from tests.support.plain_container import plain_container
from tests.support.sandbox_processes import zygote_of
from tests.support.timing import promptly

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


@pytest.fixture
def interpreter(box):
    with CodeInterpreter(box.address.url, token=box.address.token) as interpreter:
        try:
            yield interpreter
        finally:
            # They would have the container.
            for context in interpreter.contexts.list():
                interpreter.contexts.delete(context)


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


def test_session_that_takes_long_to_end_is_waited_for(box):
    with contextlib.closing(Inside(box)) as session, contextlib.closing(box.connect()) as following:
        session.do(LEAVE)
        [root] = zygote_of(box).children()
        root.suspend()
        try:
            session.close()
            following.ask_step(f"import os; print({CONTENTS})")
            # Longer than one waits for a session that does not end.
            time.sleep(6)
        finally:
            root.resume()
        seen = following.wait(timeout=60).observation
        assert (seen.stdout, seen.stderr) == ("[]\n", "")


def test_snapshots_are_restored_while_no_process_can_be_forked(box):
    with contextlib.closing(Inside(box)) as session:
        session.run("value = 42")
        snapshot = session._session.clone().snapshot
        session.run("""
            try:
                while True:
                    if os.fork() == 0: time.sleep(300)
            except BlockingIOError: pass
        """)
        session._session.ask_restore(snapshot)
        session.wait()
        assert session.see("value") == 42


# A program that forks and exits forever, faster than it can be found; each copy makes a directory.


@pytest.mark.skipif(platform.machine() != "x86_64", reason="has machine code")
@pytest.mark.parametrize("end", ["reset", "close", "restore"])
def test_no_process_survives_by_forking_faster_than_it_is_found(box, end):
    program = rotating_program(b"/home/user/L")
    for _ in range(6):
        with contextlib.closing(Inside(box)) as session:
            assert session.see("os.listdir()") == []
            snapshot = session._session.clone().snapshot if end == "restore" else None
            seen = session.run(f"""
                program = os.memfd_create("program")
                os.write(program, {program!r})
                for number in range(3):
                    try:
                        child = os.fork()
                    except BlockingIOError:
                        # Those that have exited count, too, until they are reaped: the first ones may leave no room.
                        if number == 0:
                            raise
                        break
                    if child == 0:
                        os.setsid()
                        os.execve(f"/proc/self/fd/{{program}}", ["r"], {{}})
                time.sleep(0.1)
            """)
            assert seen.metadata.outcome in (Outcome.OK, Outcome.KILLED)
            if end == "reset":
                session.reset()
            elif end == "restore":
                session._session.ask_restore(snapshot)
                session.wait()
            if end != "close":
                time.sleep(0.3)
                assert session.see("os.listdir()") == []


def rotating_program(path):
    fork = b"\xb8\x39\x00\x00\x00\x0f\x05\x85\xc0"
    leave = b"\x31\xff\xb8\x3c\x00\x00\x00\x0f\x05"
    code = fork + b"\x78" + struct.pack("b", -len(fork) - 2) + b"\x74" + struct.pack("b", len(leave)) + leave
    # mov edi, path; mov esi, 0700; mkdir; and from the beginning.
    address = 0x400000 + 64 + 56 + len(code) + 19
    code += b"\xbf" + struct.pack("<I", address) + b"\xbe\xc0\x01\x00\x00\xb8\x53\x00\x00\x00\x0f\x05"
    code += b"\xeb" + struct.pack("b", -len(code) - 2) + path + b"\0"
    size = 64 + 56 + len(code)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0x400000 + 64 + 56, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 0x1000)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + header + segment + code


def test_memory_of_other_processes_is_closed(attacker):
    attacker.do("""
        def look(path, access):
            descriptor = os.open(path, access)
            os.close(descriptor)
        others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    """)
    found = attacker.see(
        "{result_of(lambda: look(f'/proc/{pid}/{name}', access)) for pid in others"
        " for name in ('mem', 'environ', 'maps', 'fd', 'root', 'cwd') for access in (os.O_RDONLY, os.O_RDWR)}"
    )
    assert found <= {"EACCES", "EPERM", "ENOENT", "EISDIR"}


@pytest.mark.parametrize("change", ["a snapshot", "a backend"])
def test_waiting_session_does_not_take_the_place_of_one_that_goes_on(box, attacker, change):
    options = {}
    if change == "a snapshot":
        attacker._session.clone()
    else:
        options = {"backend": "restricted"}
    with contextlib.closing(box.connect()) as waiting:
        waiting.ask_step("print('has it')")
        time.sleep(0.3)
        attacker._session.ask_reset(ResetOptions(**options))
        attacker._session.wait(timeout=20)
        assert attacker.run("print(6 * 7)").stdout == "42\n"
        assert "one session at a time" in waiting.wait(timeout=20).observation.stderr
        assert attacker.run("print(6 * 7)").stdout == "42\n"


def test_several_waiting_sessions_are_refused_at_once(box, attacker):
    attacker.do("kept = 1")
    with contextlib.ExitStack() as stack:
        # One after the other, each of them would wait five seconds.
        waiting = [stack.enter_context(contextlib.closing(box.connect())) for _ in range(12)]
        with promptly():
            for session in waiting:
                session.ask_step("1")
            for session in waiting:
                assert "one session at a time" in session.wait(timeout=90).observation.stderr


def test_files_of_contexts_are_not_those_of_a_session(interpreter, attacker):
    attacker.do("open('secret', 'w').write('secret')")
    for operation in (
        lambda: interpreter.files.read("/home/user/secret"),
        lambda: interpreter.files.write("planted", b"x"),
        lambda: interpreter.files.list(),
    ):
        with pytest.raises(Exception, match="one session at a time"):
            operation()
    assert attacker.see("os.listdir()") == ["secret"]


def test_signals_arrive_once(attacker):
    attacker.do("""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 3, signal.SIGTERM})
            os.write(writer, b"x")
            count = 0
            while signal.sigwait({signal.SIGRTMIN + 3, signal.SIGTERM}) != signal.SIGTERM:
                count += 1
            os.write(writer, str(count).encode())
            os._exit(0)
        os.read(reader, 1)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, 5e-4, 5e-4)
        for _ in range(300):
            os.kill(child, signal.SIGRTMIN + 3)
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        count = os.read(reader, 10)
        os.waitpid(child, 0)
    """)
    assert attacker.see("count") == b"300"


def test_threads_are_signaled_by_their_ids(attacker):
    attacker.do("thread = threading.Thread(target=time.sleep, args=(60,), daemon=True); thread.start()")
    assert attacker.sees(["os.kill(thread.native_id, 0)", "call('tkill', thread.native_id, 0)"]) == {
        "os.kill(thread.native_id, 0)": None,
        "call('tkill', thread.native_id, 0)": 0,
    }


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


def test_contexts_share_the_container(box, interpreter):
    with contextlib.closing(box.connect()) as session:
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


def test_contexts_wait_for_a_session_that_ends(box, interpreter):
    with contextlib.closing(Inside(box)) as session, ThreadPoolExecutor() as executor:
        session.do("open('file', 'w').write('secret')")
        future = executor.submit(interpreter.files.write, "file", b"x")
        time.sleep(0.5)
        session.close()
        future.result()
        assert interpreter.execute("open('file').read()").text == "x"


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

    # A leader that outlived its children would exit with 0.
    shell = ["sh", "-c", "for i in $(seq 20); do sleep 60 & done; echo; wait"]
    groups = [subprocess.Popen(shell, start_new_session=True, stdout=subprocess.PIPE) for _ in range(5)]
    for group in groups:
        group.stdout.read(1)
        os.killpg(group.pid, signal.SIGKILL)
    received.append({group.wait(10) for group in groups})

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
    assert attacker.see("received") == [10, 12, 15, False, -15, {-9}, -9, -15, 124, "ESRCH", "done"]


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
