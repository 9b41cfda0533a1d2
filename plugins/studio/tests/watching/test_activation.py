"""Trainers in their own processes: forks, ends of all kinds, errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym_studio import watch
from coding_gym_studio.watching.client import TrainerEnded, find_trainers
from coding_gym_studio.watching.directory import connect as connect_socket
from coding_gym_studio.watching.directory import prepare_directory, socket_paths, watching_directory
from coding_gym_studio.watching.messages import receive
from plugins.studio.tests.watching.trainers import PREAMBLE, running_trainer, tell
from tests.support.timing import eventually

pytestmark = pytest.mark.usefixtures("runtime_directory")

ONE = "coding_gym_studio.watch('one')\nenv = session(); reset(env); step(env, 'print(1)', '1')\nwait()\n"


@pytest.mark.parametrize("name", ["", "x" * 81, "a\nb", 3])
def test_invalid_names_are_refused(name):
    with pytest.raises(ConfigurationError, match="Expected name= to be 1 to 80 printable characters"):
        watch(name)


def test_call(connect):
    with running_trainer(ONE) as process:
        connection = connect(process.pid)
        assert (connection.hello.name, connection.hello.root) == ("one", process.pid)
        assert [row.action for row in connection.changes().sessions] == ["print(1)"]
    assert list(socket_paths()) == [], "the socket is removed at the end"


@pytest.mark.parametrize(("value", "name"), [("1", "-c"), ("TRUE", "-c"), ("my run", "my run")])
def test_environment_variable(connect, value, name):
    program = "wait(); env = session(); reset(env); wait()"
    with running_trainer(program, CODING_GYM_WATCH=value) as process:
        assert list(socket_paths()) == [], "there is no socket before the first environment"
        tell(process)
        assert connect(process.pid).hello.name == name


@pytest.mark.parametrize("value", ["0", "", "off", "False"])
def test_environment_variable_off(value):
    with running_trainer("env = session(); reset(env); wait()", CODING_GYM_WATCH=value):
        assert list(socket_paths()) == []


def test_environments_that_exist_already_appear(connect):
    program = "env = session(); reset(env); coding_gym_studio.watch(); wait(); step(env, '1'); wait()"
    with running_trainer(program) as process:
        connection = connect(process.pid)
        assert connection.changes().sessions == []
        tell(process)
        assert eventually(lambda: connection.changes().sessions)[0].action == "1"


def test_orderly_end_says_farewell(connect):
    with running_trainer(ONE + "step(env, 'last')\n") as process:
        connection = connect(process.pid)
        connection.changes()
        tell(process)
        process.wait(30)
        with pytest.raises(TrainerEnded) as caught:
            connection.changes()
        assert [row.action for row in caught.value.last.sessions] == ["last"]
    assert list(socket_paths()) == []


def test_an_uncaught_exception_is_an_orderly_end(connect):
    with running_trainer(ONE + "sys.stderr.close(); 1 / 0\n") as process:
        connection = connect(process.pid)
        tell(process)
        process.wait(30)
        with pytest.raises(TrainerEnded) as caught:
            connection.changes()
        assert caught.value.last is not None


def test_kill_leaves_a_socket_that_is_recognized_and_removed(connect):
    with running_trainer(ONE) as process:
        connection = connect(process.pid)
        connection.changes()
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        with pytest.raises(TrainerEnded) as caught:
            connection.changes()
        assert caught.value.last is None
        assert len(list(watching_directory().iterdir())) == 1
        assert find_trainers() == []
        assert list(watching_directory().iterdir()) == []


def test_fork_publishes_its_own_environments_only(connect):
    program = """
coding_gym_studio.watch("parent")
envs = [session() for _ in range(3)]
for env in envs: reset(env)
child = os.fork()
if not child:
    mine = session(); reset(mine); step(mine, "child's")
    time.sleep(60)
    os._exit(0)
print("ready", flush=True); sys.stdin.readline()
print(child, flush=True); sys.stdin.readline()
os.kill(child, 9); os.waitpid(child, 0)
"""
    with running_trainer(program) as process:
        parent = connect(process.pid)
        tell(process)
        child = connect(int(process.stdout.readline()))
        assert len(parent.changes().sessions) == 3
        assert [row.action for row in child.changes().sessions] == ["child's"]
        assert (child.hello.name, child.hello.root) == ("parent", process.pid)
        tell(process)
        with pytest.raises(TrainerEnded):
            assert eventually(lambda: child.changes().sessions and None)


def test_a_fork_without_environments_is_silent_and_keeps_nothing_open(connect):
    program = """
coding_gym_studio.watch("parent")
env = session(); reset(env)
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
print("ready", flush=True); sys.stdin.readline()
print(child, flush=True); sys.stdin.readline()
"""
    with running_trainer(program) as process:
        connection = connect(process.pid)
        connection.changes()
        tell(process)
        child = int(process.stdout.readline())
        try:
            assert [hello.pid for hello in find_trainers()] == [process.pid]
            process.kill()
            process.wait(30)
            # Neither the listening socket nor the connection lives on in the child.
            with pytest.raises(TrainerEnded):
                connection.changes()
            assert find_trainers() == []
        finally:
            os.kill(child, signal.SIGKILL)


def test_inherited_environments_of_a_fork_begin_anew(connect):
    program = """
coding_gym_studio.watch("parent")
env = session(); reset(env)
child = os.fork()
if not child:
    step(env, "in the child")
    time.sleep(60)
    os._exit(0)
print("ready", flush=True); sys.stdin.readline()
print(child, flush=True); sys.stdin.readline()
os.kill(child, 9); os.waitpid(child, 0)
"""
    with running_trainer(program) as process:
        tell(process)
        child = connect(int(process.stdout.readline()))
        # It publishes from the beginning of its first step on.
        assert eventually(lambda: [row.action for row in child.changes().sessions]) == ["in the child"]
        assert [row.action for row in connect(process.pid).changes().sessions] == [""]


def test_a_process_that_is_started_by_the_trainer_is_its_worker(connect):
    program = """
import subprocess
code = "import sys; from coding_gym import CodingEnv; CodingEnv().reporter.resetting(); sys.stdin.readline()"
worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
print("ready", flush=True); sys.stdin.readline()
print(worker.pid, flush=True); sys.stdin.readline()
worker.communicate()
"""
    with running_trainer(program, CODING_GYM_WATCH="run") as process:
        tell(process)
        worker = connect(int(process.stdout.readline()))
        assert (worker.hello.name, worker.hello.root) == ("run", process.pid)


def test_training_continues_if_the_directory_is_not_private():
    prepare_directory().chmod(0o777)
    program = "coding_gym_studio.watch()\nenv = session(); reset(env); step(env, '1'); print('trained')"
    found = subprocess.run([sys.executable, "-c", PREAMBLE + program], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert "this process cannot be watched" in found.stderr
    assert "private directory of this user" in found.stderr


def test_a_further_call_tries_again(connect, tmp_path):
    directory = prepare_directory()
    directory.chmod(0o777)
    program = f"""
sys.stderr = open({str(tmp_path / "log")!r}, "w", buffering=1)
coding_gym_studio.watch()
coding_gym_studio.watch()
env = session(); reset(env)
os.chmod({str(directory)!r}, 0o700)
coding_gym_studio.watch("again")
step(env, "1")
wait()
"""
    with running_trainer(program) as process:
        connection = connect(process.pid)
        assert connection.hello.name == "again"
        assert [row.action for row in connection.changes().sessions] == ["1"]
    assert (tmp_path / "log").read_text().count("this process cannot be watched") == 2


def test_training_continues_if_watching_fails_later():
    program = """
coding_gym_studio.watch()
from coding_gym_studio.watching.session import WatchedSession
def fail(self, result, picture): raise OSError("disk on fire")
WatchedSession.stepped = fail
env = session(); reset(env)
for _ in range(3): step(env, '1')
print('trained')
"""
    found = subprocess.run([sys.executable, "-c", PREAMBLE + program], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert found.stderr.count("Watching has failed, and has been turned off in this process.") == 1


def test_a_trainer_without_free_file_descriptors_is_watched_later(connect, tmp_path):
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.stderr = open({str(tmp_path / "log")!r}, "w", buffering=1)
coding_gym_studio.watch()
env = session(); reset(env)
files = []
try:
    while True: files.append(open("/dev/null"))
except OSError:
    pass
wait()
for file in files: file.close()
wait()
"""
    with running_trainer(program) as process:
        (path,) = socket_paths()
        waiting = connect_socket(path, timeout=20)
        assert eventually(lambda: (tmp_path / "log").read_text())
        time.sleep(1.5)
        tell(process)
        assert receive(waiting), "it has waited for the hello"
        waiting.close()
        assert len(connect(process.pid).changes().sessions) == 1
        assert (tmp_path / "log").read_text().count("cannot connect to this process for now: [Errno 24]") == 1


def test_a_trainer_that_closes_the_socket_can_be_watched_anew(connect, tmp_path):
    program = f"""
coding_gym_studio.watch()
env = session(); reset(env)
wait()
os.closerange(3, 100)
sys.stderr = open({str(tmp_path / "log")!r}, "w", buffering=1)
sys.stdin.readline()
from coding_gym.telemetry import observation
print(observation.observers, sys.stderr.closed, flush=True)
coding_gym_studio.watch()
wait()
"""
    with running_trainer(program) as process:
        tell(process)
        assert eventually(lambda: not list(watching_directory().iterdir()))
        tell(process)
        assert process.stdout.readline() == "() False\n"
        assert len(connect(process.pid).changes().sessions) == 1
    assert (tmp_path / "log").read_text().count("Watching this process has failed; training continues.") == 1


def test_a_frozen_reader_does_not_delay_the_end_much(connect):
    with running_trainer(ONE) as process:
        connect(process.pid)
        tell(process)
        process.wait(30)
