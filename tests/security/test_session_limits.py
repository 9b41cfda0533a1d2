"""Limits of sessions with their own users: what one uses up, its neighbors, the server and grading do not miss."""

from __future__ import annotations

import contextlib
import fcntl
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from coding_gym import CodeInterpreter
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.start import start_sandbox
from coding_gym_server.protocol import Outcome
from coding_gym_server.protocol.grading import Asserts, GradingLimits, Submission, VerdictOutcome
from tests.grading.judging import Judge
from tests.security.attack import FORK_UNTIL_REFUSED, TOOLS, Inside
from tests.support.sandbox_processes import processes_of
from tests.support.timing import eventually

pytestmark = pytest.mark.docker

USERS = {"provider": "docker"}
SMALL = {"disk": "32m", "inodes": 5000, "session_pids_limit": 40, "mem": "1g"}


def start_box(**options):
    return contextlib.closing(start_sandbox(SandboxConfig(**USERS, sessions=4, preload=(), idle_timeout=3600, **options)))


@contextlib.contextmanager
def neighbor_in(box):
    """Open a session whose steps, files and reset continue, as grading does, whatever another one has used up."""
    with contextlib.closing(Inside(box)) as neighbor:
        neighbor.do("kept = 'kept'")
        yield neighbor
        assert neighbor.see("kept") == "kept"
        assert neighbor.see("open('new', 'wb').write(bytes(10_000_000))") == 10_000_000
        assert neighbor.see("subprocess.run(['true']).returncode") == 0
        neighbor.reset()
        assert neighbor.see("os.listdir('.')") == []
        with contextlib.closing(Inside(box)) as new:
            assert new.see("6 * 7") == 42
        with contextlib.closing(box.connect()) as session:
            assert Judge(session).asserts("def f(): return 1", "assert f() == 1").outcome is VerdictOutcome.PASSED


@pytest.fixture(scope="module")
def box(docker_engine):
    with start_box(**SMALL) as box:
        yield box


@pytest.fixture
def hog(box):
    with contextlib.closing(Inside(box)) as hog:
        yield hog


@pytest.fixture
def neighbor(box, hog):
    # It ends before the hog does, so that nothing is free again by then.
    with neighbor_in(box) as neighbor:
        yield neighbor


# Files


def test_full_disk_concerns_one_session(box, hog):
    # The directories of a session share its disk.
    for path in ("/home/user/hog", "/tmp/hog", "/dev/shm/hog"):
        with neighbor_in(box):
            assert hog.attempt(f"open('{path}', 'wb').write(bytes(64 << 20))") == "ENOSPC", path
        hog.do(f"os.unlink('{path}')")


def test_used_inodes_concern_one_session(hog, neighbor):
    hog.do("""
        os.mkdir('many')
        try:
            for n in range(200_000): os.mknod(f'many/{n}')
        except OSError as error:
            found = errno.errorcode[error.errno]
    """)
    assert hog.see("(found, n < 5000)") == ("ENOSPC", True)
    assert neighbor.attempt("[open(f'{n}', 'w').close() for n in range(1000)]") == "done"


def test_files_of_closed_sessions_free_memory(box):
    def used():
        return box.container.stats(stream=False)["memory_stats"]["usage"]

    for _ in range(2):
        with contextlib.ExitStack() as stack:
            for session in [stack.enter_context(contextlib.closing(Inside(box))) for _ in range(4)]:
                session.do("open('hog', 'wb').write(bytes(30 << 20))")
            full = used()
        assert eventually(lambda full=full: full - used() > 90 << 20)


def test_locked_system_files_concern_one_session(hog, neighbor):
    """Sessions share the files of the system, and locks of them; nothing that a neighbor needs asks for one."""
    hog.do("""
        held = []
        def lock(path):
            file = open(path, "rb")
            held.append(file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        files = glob.glob("/etc/*") + glob.glob(f"{os.path.dirname(os.__file__)}/*.py") + [sys.executable]
        found = {path: attempt(lambda: lock(path)) for path in files if os.path.isfile(path)}
    """)
    assert hog.see("[found[path] for path in ('/etc/passwd', sys.executable, os.__file__)]") == ["done"] * 3
    fresh = "import getpass, json, statistics, tempfile; getpass.getuser(); tempfile.TemporaryFile()"
    assert neighbor.see(f"subprocess.run([sys.executable, '-c', {fresh!r}]).returncode", 60) == 0


# Processes


def test_processes_concern_one_session(hog, neighbor):
    for session in (hog, neighbor):
        session.do(FORK_UNTIL_REFUSED)
        found, children = session.see("(found, children)")
        assert found == "EAGAIN"
        assert 30 < children < 40
    # A reset forks before the killed processes have exited.
    neighbor.reset()
    neighbor.do("kept = 'kept'")
    assert neighbor.see("subprocess.run(['true']).returncode") == 0


def test_fork_bomb_concerns_one_session(hog, neighbor):
    hog.begin("while True:\n    try: os.fork()\n    except OSError: pass", 3)
    assert [neighbor.see("subprocess.run(['true']).returncode") for _ in range(10)] == [0] * 10
    assert hog.wait().metadata.outcome is not Outcome.INFRASTRUCTURE
    hog.reset()
    assert hog.see("subprocess.run(['true']).returncode") == 0


PROCESS_LIMIT = "resource.getrlimit(resource.RLIMIT_NPROC)[1]"


def test_several_sessions_leave_processes_to_each_other(docker_engine, sandbox_of):
    with contextlib.closing(Inside(sandbox_of(**USERS))) as session:
        assert session.see(PROCESS_LIMIT) == SandboxConfig().pids_limit * 3 // 4


def test_single_session_may_use_all_processes(docker_engine, sandbox_of):
    with contextlib.closing(Inside(sandbox_of(**USERS, sessions=1))) as session:
        limit = session.see(PROCESS_LIMIT)
        assert limit == -1 or limit > SandboxConfig().pids_limit


# What the kernel counts per user


def test_pending_signals_concern_one_session(hog, neighbor):
    for session in (hog, neighbor):
        session.do("info = ctypes.create_string_buffer(128); struct.pack_into('iii', info, 0, int(signal.SIGRTMIN), 0, -1)")
        session.do("""
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
            queued = 0
            try:
                while queued < 100_000:
                    call("rt_sigqueueinfo", os.getpid(), int(signal.SIGRTMIN), ctypes.addressof(info))
                    queued += 1
            except OSError:
                pass
        """)
    assert hog.see("queued") > 1000
    assert neighbor.see("queued") == hog.see("queued")


def test_timers_concern_one_session(hog, neighbor):
    for session in (hog, neighbor):
        session.do("""
            identifier = ctypes.create_string_buffer(8)
            timers = 0
            while timers < 100_000 and libc.timer_create(time.CLOCK_MONOTONIC, None, identifier) == 0:
                timers += 1
            found = errno.errorcode[ctypes.get_errno()]
        """)
    assert hog.see("(timers > 1000, found)") == (True, "EAGAIN")
    assert neighbor.see("timers") == hog.see("timers")


WATCH_LIMIT = Path("/proc/sys/fs/epoll/max_user_watches")
FEW_WATCHES, MOST_WATCHES = 200_000, 8_000_000
PER_PROCESS = 1900
"""Number of watching, and of watched, descriptors of a process, within the limit of 4096."""

WATCH_UNTIL_REFUSED = f"""
    event = os.eventfd(0)
    targets = [os.dup(event) for _ in range({PER_PROCESS})]
    held, readers = [], []

    def watch():
        for _ in range({PER_PROCESS}):
            epoll = select.epoll()
            held.append(epoll)
            for target in targets:
                epoll.register(target, 0)

    for _ in range(watches // {PER_PROCESS}**2 + 1):
        reader, writer = os.pipe()
        readers.append(reader)
        if os.fork() == 0:
            os.write(writer, attempt(watch).encode())
            time.sleep(600)
            os._exit(0)
        os.close(writer)
    found = [os.read(reader, 100).decode() for reader in readers]
"""


@pytest.fixture
def watches():
    """Number of epoll watches that the kernel permits a user; without watches, a server cannot accept connections.

    It is about four percent of the machine's memory, which takes long to use up: root lowers it during the test.
    """
    with contextlib.ExitStack() as stack:
        limit = int(WATCH_LIMIT.read_text())
        with contextlib.suppress(OSError):
            file = stack.enter_context(WATCH_LIMIT.open("r+"))
            # Other test processes restore the limit before it is read here.
            fcntl.flock(file, fcntl.LOCK_EX)
            limit = int(WATCH_LIMIT.read_text())
            if limit > FEW_WATCHES:
                WATCH_LIMIT.write_text(str(FEW_WATCHES))
                stack.callback(WATCH_LIMIT.write_text, str(limit))
                limit = FEW_WATCHES
        if limit > MOST_WATCHES:
            pytest.skip(f"{limit} watches, as many as this machine permits, take too much memory and time")
        yield limit


def test_epoll_watches_concern_one_session(watches, docker_engine):
    # A dedicated sandbox, because the watches of this machine's limit occupy a gigabyte unless it can be lowered.
    with start_box(mem="3g") as box, contextlib.closing(Inside(box)) as hog, neighbor_in(box) as neighbor:
        hog.do(f"watches = {watches}")
        hog.do(WATCH_UNTIL_REFUSED, 80)
        assert "ENOSPC" in hog.see("found")
        assert neighbor.see("select.epoll().register(os.eventfd(0), 0)") is None


def test_epoll_watches_of_contexts_concern_no_session(watches, docker_engine):
    """Contexts share a user, but not that of the server, whose API and sessions continue."""
    with CodeInterpreter(**USERS, preload=(), mem="3g") as interpreter:
        hog, other = interpreter.contexts.create(), interpreter.contexts.create()

        def do(code, context=hog):
            execution = interpreter.execute(textwrap.dedent(code), context=context, timeout=80)
            assert execution.error is None, execution.error
            return execution.text

        do(TOOLS)
        with neighbor_in(interpreter.sandbox) as neighbor:
            do(f"watches = {watches}")
            do(WATCH_UNTIL_REFUSED)
            assert "ENOSPC" in do("' '.join(found)")
            assert neighbor.see("select.epoll().register(os.eventfd(0), 0)") is None
            # It has the same user, but an interpreter needs no watches.
            assert do("6 * 7", other) == "42"
            assert do("6 * 7", interpreter.contexts.create()) == "42"
            interpreter.files.write("file", "text")
            assert do("open('file').read()") == "text"


HELD = "60.25"
"""Seconds for which a submission keeps what it has used up, in the arguments of a program that shows the beginning."""


def holders(box):
    found = []
    for process in processes_of(box):
        with contextlib.suppress(psutil.Error):
            if HELD in process.cmdline():
                found.append(process)
    return found


@pytest.mark.timeout(300)
def test_epoll_watches_of_submissions_concern_no_one_else(watches, docker_engine):
    """Submissions have their own users: not only the server and sessions continue, but also grading."""
    with start_box(mem="3g") as box, contextlib.closing(box.connect()) as session, ThreadPoolExecutor(1) as threads:
        hold = f"print(found)\nsubprocess.run(['sleep', '{HELD}'])\nprint(attempt(watch))"
        code = f"{TOOLS}\nwatches = {watches}\n{textwrap.dedent(WATCH_UNTIL_REFUSED)}\n{hold}"
        limits = GradingLimits(cpu_timeout=100, wall_timeout=110)
        submission = Submission(code=code, tests=Asserts(cases=("assert True",)), limits=limits)
        graded = threads.submit(session.grade, submission, timeout=120)
        assert eventually(lambda: graded.done() or holders(box), 90)
        with neighbor_in(box) as neighbor:
            assert neighbor.see("select.epoll().register(os.eventfd(0), 0)") is None
        assert not graded.done()
        for holder in holders(box):
            # Otherwise it ends by itself.
            with contextlib.suppress(psutil.Error):
                holder.kill()
        result = graded.result()
        assert result.outcome is VerdictOutcome.PASSED, result
        held, at_the_end = result.stdout.splitlines()
        assert "ENOSPC" in held
        assert at_the_end == "ENOSPC"
