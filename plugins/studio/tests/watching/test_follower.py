from __future__ import annotations

import signal

import pytest

from coding_gym_studio.watching import client
from coding_gym_studio.watching.directory import socket_paths
from coding_gym_studio.watching.follower import Follower
from plugins.studio.tests.watching.trainers import PREAMBLE, running_trainer, tell
from tests.support.timing import eventually

pytestmark = pytest.mark.usefixtures("runtime_directory")

TRAINER = """
coding_gym_studio.watch({name!r})
env = session(); reset(env)
def run():
    number = 0
    while True:
        number += 1
        step(env, f"step {{number}}")
        time.sleep(0.01)
threading.Thread(target=run, daemon=True).start()
wait()
"""


def rows(process):
    return [row for _, row in process.rows.values()]


def test_trainers_that_begin_later_are_followed():
    with Follower(lambda hello: hello.name == "wanted") as follower:
        follower.attend()
        assert follower.processes == []
        with running_trainer(TRAINER.format(name="other")), running_trainer(TRAINER.format(name="wanted")) as trainer:
            (process,) = eventually(lambda: follower.processes)
            assert process.hello.pid == trainer.pid
            first = rows(process)[0].all_steps
            assert eventually(lambda: rows(process)[0].all_steps > first)
            assert process.history(rows(process)[0].id)
        assert eventually(lambda: process.status == "ended")
        assert [row.state for row in rows(process)] in (["idle"], ["running"])
        assert process.ended_at is not None


def test_a_killed_trainer_is_lost_and_its_last_picture_stays():
    with Follower(lambda hello: True) as follower:
        follower.attend()
        with running_trainer(TRAINER.format(name="run")) as trainer:
            (process,) = eventually(lambda: follower.processes)
            assert eventually(lambda: rows(process)[0].all_steps > 3)
            trainer.kill()
            assert eventually(lambda: process.status == "lost")
        assert rows(process)
        with running_trainer(TRAINER.format(name="run")) as restarted:
            assert eventually(lambda: [process.hello.pid for process in follower.processes] == [restarted.pid])


def test_a_stopped_trainer_is_lost_until_it_continues(monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT", 0.5)
    with Follower(lambda hello: True) as follower, running_trainer(TRAINER.format(name="run")) as trainer:
        follower.attend()
        (process,) = eventually(lambda: follower.processes)
        trainer.send_signal(signal.SIGSTOP)
        assert eventually(lambda: process.status == "lost")
        trainer.send_signal(signal.SIGCONT)
        assert eventually(lambda: [process.status for process in follower.processes] == ["live"])
        (again,) = follower.processes
        assert (again.hello, again.key > process.key) == (process.hello, True)
        first = rows(again)[0].all_steps
        assert eventually(lambda: rows(again)[0].all_steps > first)
        assert again.history(rows(again)[0].id)


def test_workers_that_end_as_planned_disappear():
    program = """
coding_gym_studio.watch("run")
env = session(); reset(env)
child = os.fork()
if not child:
    mine = session(); reset(mine)
    time.sleep(2.5)
    sys.exit(0)
wait()
os.waitpid(child, 0)
"""
    with Follower(lambda hello: True) as follower:
        follower.attend()
        with running_trainer(program) as trainer:
            assert eventually(lambda: len(follower.processes) == 2)
            assert eventually(lambda: [process.hello.pid for process in follower.processes] == [trainer.pid])


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_multiprocessing_end_in_an_orderly_way(method, tmp_path):
    (tmp_path / "trainer.py").write_text(
        PREAMBLE
        + f"""
import multiprocessing

def work():
    mine = session(); reset(mine); step(mine, "worker's")
    time.sleep(2)

if __name__ == "__main__":
    coding_gym_studio.watch("run")
    env = session(); reset(env)
    context = multiprocessing.get_context({method!r})
    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers: worker.start()
    wait()
    for worker in workers: worker.join()
    print("joined", flush=True); sys.stdin.readline()
"""
    )
    program = f"import runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[0] = {str(tmp_path / 'trainer.py')!r}\n"
    program += "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    with Follower(lambda hello: True) as follower:
        follower.attend()
        with running_trainer(program, CODING_GYM_WATCH="run") as trainer:
            assert eventually(lambda: len(follower.processes) == 3)
            tell(trainer)
            assert trainer.stdout.readline() == "joined\n"
            assert len(list(socket_paths())) == 1
            assert eventually(lambda: [process.hello.pid for process in follower.processes] == [trainer.pid])
