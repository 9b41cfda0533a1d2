"""Users, mounts and files of the sessions of a local sandbox, by the user that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap

import pytest

from coding_gym.errors import SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.grading.judging import Judge
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import server_of

LOOK = """
    import os, shutil, subprocess
    for directory in (".", "/tmp", "/dev/shm"):
        open(os.path.join(directory, "mine"), "x").close()
    print(os.getuid(), os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"], shutil.disk_usage(".").total >> 20)
    names = os.listdir(".") + os.listdir("/tmp") + os.listdir("/dev/shm")
    print([name for name in names if name == "mine"], subprocess.getoutput("id -un"))
    # They belong to the server's user, as whom sessions without their own users run.
    for directory in ("/run/workspaces", "/run", "/home", "/"):
        try:
            os.chmod(directory, 0)
        except OSError as error:
            print(error.strerror)
"""
LOOK_AROUND = textwrap.dedent(LOOK)
OWN = "10001 /home/user /home/user /tmp 8\n['mine', 'mine', 'mine'] user\n" + "Read-only file system\n" * 4
UNPRIVILEGED_USER = 54321
SANDBOX = SandboxConfig(provider="local", preload=(), sessions=2, disk="8m")

# An interpreter that becomes another user, where that user can read the installation.
AS_OTHER_USER = """
    import contextlib, json, os, sys
    from coding_gym_server.isolation import namespaces
    from coding_gym_server.isolation.profile import python_directories
    from coding_gym_server.linux import user_namespaces

    account = {"user": 10001, "home": "/home/user", "max_inodes": 1000}
    namespaces.enter(keep={}, readable=python_directories(), covered=[], network=True, **account)
    user_namespaces.become(int(sys.argv[1]))

    from coding_gym import CodeInterpreter
    from coding_gym.sandbox import start_sandbox
    from coding_gym.sandbox.config import SandboxConfig
    from coding_gym_server.protocol.grading import Asserts, Submission
    from coding_gym_server.protocol.processes import TerminalSize
"""

# Prints what the sessions and the sandbox report.
SESSIONS = """
    with contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=(), sessions=2, disk="8m"))) as sandbox:
        with contextlib.closing(sandbox.connect()) as first, contextlib.closing(sandbox.connect()) as second:
            printed = []
            for session in (first, second):
                session.ask_step(sys.argv[2])
                observation = session.wait(timeout=20).observation
                printed.append(observation.stdout + observation.stderr)
                command = "test -t 0 && echo terminal"
                with session.http.processes.start(command, terminal=TerminalSize(), user="user") as process:
                    printed[-1] += process.wait().stdout.decode()
            submission = Submission(code="def f(): return 1", tests=Asserts(cases=("assert f() == 1", "assert f() == 2")))
            graded = first.grade(submission, timeout=30)
            printed.append([graded.message, *(case.outcome.value for case in graded.cases)])
        print(json.dumps([printed, sandbox.health()["isolation"]]))
"""

# Prints what contexts report, before and after the death of the zygote.
CONTEXTS = """
    import psutil

    with CodeInterpreter(provider="local", preload=(), spare_workers=0, disk="8m") as interpreter:
        interpreter.files.write("early", "early")
        printed = [interpreter.execute(sys.argv[2]).stdout]
        interpreter.execute("open('/tmp/late', 'w').write('late')")
        for process in psutil.Process().children(recursive=True):
            if "coding_gym_server.zygote.bootstrap" in " ".join(process.cmdline()):
                # The zygote is the parent of the roots.
                process.kill()
                process.wait()
                break
        read = "open('early').read(), open('/tmp/late').read()"
        printed += [interpreter.execute(read, context=interpreter.contexts.create()).text, interpreter.execute(read).text]
        print(json.dumps([printed, interpreter.sandbox.health()["isolation"]]))
"""

# Prints what submissions report, whose tests read their files.
SUBMISSIONS = """
    from coding_gym_server.protocol.grading import Asserts, Submission

    tests = Asserts(cases=("assert 'mine' in workspace.listdir()", "assert workspace.read_text('mine') == ''"))
    with contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=(), sessions=2, disk="8m"))) as sandbox:
        with contextlib.closing(sandbox.connect()) as session:
            graded = [session.grade(Submission(code=sys.argv[2], tests=tests), timeout=20) for _ in range(2)]
        printed = [(verdict.stdout + verdict.stderr, verdict.outcome.value) for verdict in graded]
        print(json.dumps([printed, sandbox.health()["isolation"]]))
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts sandboxes for other users")


def look(sandbox):
    printed = []
    with contextlib.ExitStack() as stack:
        for session in [stack.enter_context(contextlib.closing(sandbox.connect())) for _ in range(2)]:
            session.ask_step(LOOK_AROUND)
            observation = session.wait(timeout=20).observation
            printed.append(observation.stdout + observation.stderr)
    return printed


@as_root
def test_sessions_of_root_have_users():
    with contextlib.closing(start_sandbox(SANDBOX)) as sandbox:
        isolation = sandbox.health()["isolation"]
        if "cannot read" in isolation["shared_user_reason"]:
            pytest.skip(isolation["shared_user_reason"])
        assert (isolation["session_users"], isolation["session_mounts"], isolation["capabilities"]) == (True, True, False)
        assert look(sandbox) == [OWN, OWN]
        with contextlib.closing(sandbox.connect()) as session:
            graded = Judge(session).asserts(LOOK_AROUND, "assert workspace.read_text('mine') == ''")
        assert (graded.stdout, graded.outcome.value) == (OWN, "passed")
        server = server_of(sandbox)
        assert server.uids().real > 1 << 20
    assert gone_within([server]) == []


def run_as_other_user(program):
    """Return what a program prints that an unprivileged user runs, and the isolation of its sandbox."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AS_OTHER_USER) + textwrap.dedent(program), str(UNPRIVILEGED_USER), LOOK_AROUND],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(os.path.isdir, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    printed, isolation = json.loads(process.stdout)
    if "cannot read" in isolation["shared_user_reason"]:
        pytest.skip(isolation["shared_user_reason"])
    assert (isolation["session_users"], isolation["session_mounts"], isolation["capabilities"]) == (False, True, False)
    assert f"runs as user {UNPRIVILEGED_USER}" in isolation["shared_user_reason"]
    assert isolation["shared_files_reason"] == ""
    return printed


@as_root
def test_sessions_of_other_users_have_mounts():
    assert run_as_other_user(SESSIONS) == [OWN + "terminal\r\n", OWN + "terminal\r\n", ["", "passed", "failed"]]


@as_root
def test_contexts_of_other_users_share_mounts():
    assert run_as_other_user(CONTEXTS) == [OWN, "('early', 'late')", "('early', 'late')"]


@as_root
def test_submissions_of_other_users_have_mounts():
    assert run_as_other_user(SUBMISSIONS) == [[OWN, "passed"]] * 2


@as_root
def test_modules_that_only_root_can_read_are_refused(tmp_path):
    config = SandboxConfig(provider="local", preload=(), environment={"PYTHONPATH": str(tmp_path)})
    tmp_path.chmod(0o700)
    with pytest.raises(SandboxStartError, match=f"cannot read {tmp_path}: install Python where all users can read it"):
        start_sandbox(config)


@as_root
def test_terminals_of_the_machine_are_hidden():
    controller, terminal = os.openpty()
    name = os.ttyname(terminal)
    code = f"""
        import os
        try:
            os.open({name!r}, os.O_RDWR)
        except OSError as error:
            print(type(error).__name__)
    """
    try:
        with contextlib.closing(start_sandbox(SANDBOX)) as sandbox, contextlib.closing(sandbox.connect()) as session:
            session.ask_step(textwrap.dedent(code))
            assert session.wait(timeout=20).observation.stdout == "FileNotFoundError\n"
    finally:
        os.close(controller)
        os.close(terminal)


def test_replaced_links_to_python_redirect_no_program():
    code = """
        import os
        for entry in list(os.scandir("/tmp")):
            if entry.is_symlink():
                os.unlink(entry.path)
                os.mkdir(entry.path)
    """
    with (
        contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=()))) as sandbox,
        contextlib.closing(sandbox.connect()) as session,
    ):
        session.ask_step(textwrap.dedent(code))
        assert session.wait(timeout=20).observation.stderr == ""
        assert session.http.processes.run("echo started").stdout == b"started\n"
