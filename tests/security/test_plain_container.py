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


@pytest.fixture(scope="module")
def box(docker_engine):
    with plain_container(transport="tcp") as box:
        yield box


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


def test_submissions_run_beside_the_session(box, attacker):
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
            assert (graded.outcome.value, graded.stdout) == ("passed", "PermissionError\n" * 4)
    assert attacker.see("os.listdir()") == ["mine"]
    assert "PermissionError" in attacker.run("os.listdir('/workspaces')").stderr


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
