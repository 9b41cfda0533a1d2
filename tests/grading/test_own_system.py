"""Submissions have a user, mounts and a file system of their own, which the tests of each of them can access."""

from __future__ import annotations

import ast
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from coding_gym import CodeInterpreter
from coding_gym.errors import CodingGymError
from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol.grading import (
    FileContent,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge
from tests.security.attack import Inside
from tests.support.sandbox_faults import is_gone, settled_descriptors
from tests.support.sandbox_processes import ITSELF, PARENT, host_process, processes_of, server_of, zygote_of
from tests.support.timing import eventually

DIRECTORIES = ("/home/user", "/tmp", "/dev/shm")


def require_users(sandbox: Sandbox) -> Sandbox:
    isolation = sandbox.health()["isolation"]
    if not isolation["session_users"]:
        pytest.skip(isolation["shared_user_reason"])
    return sandbox


@pytest.fixture(scope="module")
def box(provider: str, sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    return require_users(sandbox_of(provider=provider))


@pytest.fixture
def judge(box: Sandbox) -> Iterator[Judge]:
    with contextlib.closing(box.connect()) as session:
        yield Judge(session)


@contextlib.contextmanager
def judge_in(provider: str, **options: Any) -> Iterator[tuple[Sandbox, Judge]]:
    """Start a dedicated sandbox, and grade over a connection to it."""
    with (
        contextlib.closing(start_sandbox(SandboxConfig(provider=provider, preload=(), sessions=4, **options))) as sandbox,
        contextlib.closing(require_users(sandbox).connect()) as session,
    ):
        yield sandbox, Judge(session)


def see(judge: Judge, expression: str, before: str = "", **options: Any) -> Any:
    """Return the value of an expression in a submission."""
    graded = judge.asserts(f"import os\n{before}\nprint(repr(({expression})))", "assert True", **options)
    assert graded.outcome is VerdictOutcome.PASSED, graded.message
    return ast.literal_eval(graded.stdout)


def see_in_tests(judge: Judge, expression: str, code: str = "") -> Any:
    """Return the value of an expression in the tests of a submission."""
    graded = judge.asserts(code, f"import os\nassert False, repr({expression})")
    assert graded.outcome is VerdictOutcome.FAILED, graded
    return ast.literal_eval(graded.cases[0].message.rpartition("AssertionError: ")[2])


def run_program(judge: Judge, code: str, *printed: str, **options: Any) -> Graded:
    return judge(Submission(code=code, tests=Programs(cases=tuple(ProgramCase(stdout=text) for text in printed)), **options))


# Files


@pytest.mark.every_provider
def test_submissions_see_the_paths_of_sessions(judge: Judge) -> None:
    seen = see(judge, "os.getcwd(), os.environ['PWD'], os.environ['HOME'], os.environ['TMPDIR'], os.getuid(), os.getgid()")
    assert seen == ("/home/user", "/home/user", "/home/user", "/tmp", 10001, 10001)
    assert see(judge, f"[oct(os.stat(path).st_mode) for path in {DIRECTORIES}]") == ["0o40700", "0o41777", "0o41777"]


LEAVE = f"""
for directory in {DIRECTORIES}:
    os.makedirs(f"{{directory}}/.left/below")
    open(f"{{directory}}/.left/below/file", "w").close()
    os.chmod(f"{{directory}}/.left", 0)
    os.setxattr(directory, "user.left", b"left")
    os.utime(directory, (1234, 1234))
    os.chmod(directory, 0)
"""
STATE = (
    f"[(sorted(os.listdir(path)), oct(os.stat(path).st_mode), os.listxattr(path), os.stat(path).st_mtime == 1234) "
    f"for path in {DIRECTORIES}]"
)


@pytest.mark.every_provider
def test_next_submission_finds_initial_state(judge: Judge) -> None:
    before = see(judge, STATE)
    assert see(judge, "1", LEAVE) == 1
    assert see(judge, STATE) == before
    code = "import os\ndef f(): os.kill(os.getpid(), 9)\n" + LEAVE
    assert judge.asserts(code, "f()").outcome is VerdictOutcome.KILLED
    assert see(judge, STATE) == before
    program = "import os\nprint('left' in str([os.listdir(path) for path in ('.', '/tmp', '/dev/shm')]))\n" + LEAVE
    assert run_program(judge, program, "False", "False").outcome is VerdictOutcome.PASSED
    assert see(judge, STATE) == before


@pytest.mark.every_provider
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_submissions_and_sessions_do_not_see_each_others_files(box: Sandbox, judge: Judge, directory: str) -> None:
    with contextlib.closing(Inside(box)) as session:
        session.do(f"open('{directory}/of_session', 'w').close()")
        code = f"open('{directory}/of_submission', 'w').close()\nimport time; time.sleep(2)"
        thread = threading.Thread(target=lambda: judge.asserts(code, "assert True"))
        thread.start()
        names = f"os.listdir('{directory}')"
        with contextlib.closing(box.connect()) as other:
            for _ in range(3):
                assert not {"of_session", "of_submission"} & {*see(Judge(other), names)}
                assert "of_submission" not in session.see(names)
        thread.join()


@pytest.mark.every_provider
def test_submissions_and_contexts_do_not_see_each_others_files(provider: str) -> None:
    with CodeInterpreter(provider=provider, preload=()) as interpreter:
        require_users(interpreter.sandbox)
        interpreter.execute("for path in ('.', '/tmp', '/dev/shm'): open(f'{path}/of_context', 'w').close()")
        with contextlib.closing(interpreter.sandbox.connect()) as session:
            found = see(Judge(session), f"[name for path in {DIRECTORIES} for name in os.listdir(path)]")
    assert "of_context" not in found


@pytest.mark.every_provider
def test_tests_read_files_of_submission(judge: Judge) -> None:
    code = """
import os, tempfile
os.umask(0o077)
os.makedirs("made/below")
open("made/below/file", "w").write("text")
open("/home/user/absolute", "w").write("text")
temporary = tempfile.NamedTemporaryFile("w", delete=False)
temporary.write("text")
temporary.close()
def f(): return temporary.name
"""
    cases = (
        "import os\nassert open('made/below/file').read() == workspace.read_text('absolute') == 'text'",
        "assert sorted(os.listdir()) == sorted({*workspace.listdir(), 'made', 'absolute'})",
        "assert open(os.path.join(os.environ['TMPDIR'], os.path.basename(f()))).read() == 'text'",
        "assert os.getcwd() == os.environ['HOME'] == os.path.realpath('.')",
        "assert {os.stat(path).st_uid for path in ('.', 'made', 'absolute')} == {os.getuid()}",
    )
    graded = judge.asserts(code, *cases)
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


@pytest.mark.every_provider
def test_submission_reads_files_of_tests(judge: Judge) -> None:
    code = """
import os
def f(path):
    open(path, "a").write(" and more")
    os.chmod(path, 0o600)
    status = os.stat(path)
    return open(path).read(), status.st_uid == os.getuid(), status.st_gid == os.getgid()
"""
    case = "workspace.write_text('d/e', 'text')\nassert f('d/e') == ('text and more', True, True)"
    assert judge.asserts(code, case, "assert workspace.read_text('d/e') == 'text and more'").outcome is VerdictOutcome.PASSED


@pytest.mark.every_provider
def test_files_of_task_belong_to_submission(judge: Judge) -> None:
    files = {"a/in.txt": "né", "b.bin": FileContent(base64=b"\x00\xff")}
    status = "[(s.st_uid == os.getuid(), s.st_gid == os.getgid(), oct(s.st_mode)) for s in map(os.stat, ('a', 'a/in.txt'))]"
    assert see(judge, status, files=files) == [(True, True, "0o40755"), (True, True, "0o100644")]
    code = "open('b.bin', 'ab').write(open('a/in.txt', 'rb').read())\nprint(open('b.bin', 'rb').read())"
    assert run_program(judge, code, *[str(b"\x00\xffn\xc3\xa9")] * 2, files=files).outcome is VerdictOutcome.PASSED


@pytest.mark.every_provider
def test_replaced_links_to_python_mislead_no_test(judge: Judge) -> None:
    """Where Python is below a directory that submissions cover, they can replace the links that lead to it."""
    code = """
import os
for directory in ("/home/user", "/tmp"):
    for entry in list(os.scandir(directory)):
        if entry.is_symlink():
            os.unlink(entry.path)
            os.mkdir(entry.path)
"""
    graded = judge.asserts(code, "import quopri, wave", "import json.tool, wsgiref.util")
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


def test_hanging_tests_are_followed_by_tests_with_files(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=5, wall_timeout=0.5)
    assert judge.asserts("x = 1", "while True: pass", limits=limits).outcome is VerdictOutcome.TIMEOUT
    code = "open('made', 'w').write('text')"
    assert judge.asserts(code, "assert workspace.read_text('made') == 'text'").outcome is VerdictOutcome.PASSED


# Limits

FILL = """
import errno
def f(directory):
    try:
        for number in range(4):
            open(f"{directory}/{number}", "wb").write(bytes(8 << 20))
    except OSError as error:
        return errno.errorcode[error.errno]
"""
USE_INODES = """
import errno, os
def f(directory):
    try:
        for number in range(200_000):
            os.mknod(f"{directory}/{number}")
    except OSError as error:
        return errno.errorcode[error.errno], number < 5000
"""


@pytest.mark.every_provider
def test_full_disk_concerns_one_submission(provider: str) -> None:
    with judge_in(provider, disk="16m", inodes=5000) as (sandbox, judge), contextlib.closing(Inside(sandbox)) as session:
        for directory in DIRECTORIES:
            assert judge.asserts(FILL, f"assert f({directory!r}) == 'ENOSPC'").outcome is VerdictOutcome.PASSED
            assert see(judge, f"open('{directory}/file', 'wb').write(bytes(12 << 20))") == 12 << 20
            assert session.see(f"open('{directory}/file', 'wb').write(bytes(4 << 20))") == 4 << 20
        for directory in DIRECTORIES:
            graded = judge.asserts(USE_INODES, f"assert f({directory!r}) == ('ENOSPC', True)")
            assert graded.outcome is VerdictOutcome.PASSED, graded.cases
            made = "[open(f'{n}', 'w').close() for n in range(1000)].count(None)"
            assert (see(judge, made), session.see(made)) == (1000, 1000)
            session.reset()


def test_programs_of_tests_import_nothing_of_submissions(judge: Judge) -> None:
    for directory in (".", "/tmp"):
        code = f"""
for name in ("colorsys", "sitecustomize", "usercustomize"):
    open(f"{directory}/{{name}}.py", "w").write("raise SystemExit(3)")
"""
        setup = f"import os, subprocess, sys\nos.chdir({directory!r})\nrun = lambda *args: subprocess.run([sys.executable, *args]).returncode"
        graded = judge.asserts(
            code, "assert run('-c', 'import colorsys') == 0", "assert run('-m', 'colorsys') == 0", setup=setup
        )
        assert graded.outcome is VerdictOutcome.PASSED, graded.cases


@pytest.mark.every_provider
def test_temporary_directory_of_tests_is_found_each_time(judge: Judge) -> None:
    setup = "import os, tempfile"
    cases = ("assert tempfile.gettempdir() == os.environ['TMPDIR']",)
    for mode in (0o000, 0o1777):
        graded = judge.asserts(f"import os; os.chmod('/tmp', {mode})", *cases, setup=setup)
        assert graded.outcome is VerdictOutcome.PASSED, graded.cases


# Users and processes


@pytest.mark.every_provider
def test_submissions_have_users_of_their_own(box: Sandbox) -> None:
    def user_of(root: tuple[int, str]) -> int:
        return host_process(box, root).uids().real

    found: list[tuple[int, str]] = []
    with contextlib.ExitStack() as stack:
        judges = [Judge(stack.enter_context(contextlib.closing(box.connect()))) for _ in range(2)]
        # The parent, a root, outlives its submission. Two are graded at the same time.
        before = "import time; time.sleep(1)"
        threads = [threading.Thread(target=lambda judge=judge: found.append(see(judge, PARENT, before))) for judge in judges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tests = user_of(see_in_tests(judges[0], PARENT))
        session = stack.enter_context(contextlib.closing(Inside(box)))
        others = {server_of(box).uids().real, user_of(session.see(ITSELF))}
        users = {user_of(pid) for pid in found}
    assert len(users) == 2
    assert users.isdisjoint({*others, tests})


@pytest.mark.every_provider
def test_tests_are_out_of_reach(judge: Judge) -> None:
    """Neither a signal nor a file in ``/proc`` leads from a submission to its tests or to another process."""
    code = """
import os
def attempts(pid):
    yield lambda: open(f"/proc/{pid}/environ", "rb").read(1)
    yield lambda: open(f"/proc/{pid}/maps", "rb").read(1)
    yield lambda: open(f"/proc/{pid}/oom_score_adj", "w")
    yield lambda: os.readlink(f"/proc/{pid}/cwd")
    yield lambda: os.readlink(f"/proc/{pid}/fd/0")
    yield lambda: os.listdir(f"/proc/{pid}/root/home")
    yield lambda: os.kill(pid, 0) is None
def f(pid):
    done = []
    for number, attempt in enumerate(attempts(pid)):
        try:
            # The kernel's own threads have nothing to read.
            if attempt():
                done.append(number)
        except OSError:
            pass
    return done
def others():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
"""
    cases = ("import os\nassert f(os.getpid()) == []", "assert {pid: f(pid) for pid in others() if f(pid)} == {}")
    graded = judge.asserts(code, *cases)
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


@pytest.mark.every_provider
def test_dead_processes_are_replaced(provider: str) -> None:
    with judge_in(provider) as (sandbox, judge):
        server = server_of(sandbox)

        def root() -> Any:
            return see(judge, PARENT, "open('/tmp/left', 'w').close()")

        def tests() -> Any:
            return see_in_tests(judge, PARENT)

        first = host_process(sandbox, root())
        user, descriptors = first.uids().real, settled_descriptors(server)
        for find in (root, tests) * 3:
            process = host_process(sandbox, find())
            process.kill()
            assert eventually(lambda process=process: is_gone(process))
            assert see(judge, "os.path.exists('/tmp/left')") is False
        assert host_process(sandbox, root()).uids().real != user
        assert eventually(lambda: server.num_fds() <= descriptors)


@pytest.mark.every_provider
@pytest.mark.parametrize("end", ["close", "kill the server", "kill the zygote and close"])
def test_daemons_of_tests_end_with_sandbox(provider: str, end: str) -> None:
    """Neither a test that never ends nor a process that it has detached from its parents remains."""
    setup = """
import ctypes, os, time
os.fork() or os.setsid()
os.fork()
# No signal at the end of the parent.
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
while True: time.sleep(1)
"""
    with judge_in(provider) as (sandbox, judge):
        assert judge.asserts("x = 1", "assert x == 1").outcome is VerdictOutcome.PASSED
        before = set(processes_of(sandbox))
        limits = GradingLimits(cpu_timeout=60, wall_timeout=60)

        def grade() -> None:
            with contextlib.suppress(CodingGymError):
                judge.asserts("x = 1", "assert x", setup=setup, limits=limits)

        thread = threading.Thread(target=grade)
        thread.start()
        # The submission, the test runner, and its three descendants.
        assert eventually(lambda: len(set(processes_of(sandbox)) - before) >= 5)
        found = processes_of(sandbox)
        if end == "kill the server":
            server_of(sandbox).kill()
        elif end == "kill the zygote and close":
            zygote_of(sandbox).kill()
    thread.join()
    assert eventually(lambda: all(map(is_gone, found))), [process for process in found if not is_gone(process)]


@pytest.mark.every_provider
def test_submissions_outlive_zygotes(provider: str) -> None:
    with judge_in(provider) as (sandbox, judge):

        def passes() -> bool:
            graded = judge.asserts("open('made', 'w').write('text')", "assert workspace.read_text('made') == 'text'")
            return graded.outcome is VerdictOutcome.PASSED

        def root() -> psutil.Process:
            return host_process(sandbox, see(judge, PARENT))

        def zygote_of_submissions() -> psutil.Process:
            parent = root().parent()
            assert parent is not None
            return parent

        # What the next zygotes fork must work together, too.
        for find in (lambda: zygote_of(sandbox), zygote_of_submissions, root):
            process = find()
            process.kill()
            assert eventually(lambda process=process: is_gone(process))
            assert eventually(passes, 60)


@pytest.mark.every_provider
def test_processes_of_submissions_are_limited(provider: str) -> None:
    code = """
import errno, os, time
def f():
    children = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            children += 1
    except OSError as error:
        return errno.errorcode[error.errno], 20 < children < 50
"""
    with judge_in(provider, session_pids_limit=50) as (_, judge):
        graded = judge.asserts(code, "assert f() == ('EAGAIN', True)")
        assert graded.outcome is VerdictOutcome.PASSED, graded.cases
        assert see(judge, "__import__('subprocess').run(['true']).returncode") == 0
