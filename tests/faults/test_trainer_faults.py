"""Trainers that are killed: their sandboxes end by themselves, and the next trainer removes the leftovers."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from coding_gym.sandbox import ownership as owner
from coding_gym.sandbox.docker.cleanup import our_containers, remove_orphans
from coding_gym.sandbox.ownership import OwnerProcess, remove_orphaned_directories
from tests.support.sandbox_faults import eventually

pytestmark = [pytest.mark.lifecycle, pytest.mark.every_provider]

TRAINER = """
    import os, signal, sys, threading, time
    import gymnasium as gym
    import coding_gym

    provider, moment, delay = sys.argv[1:]

    def die_soon():
        threading.Timer(float(delay), os.kill, (os.getpid(), signal.SIGKILL)).start()

    envs = gym.make_vec(
        "CodingEnv-v0", num_envs=4, sessions_per_sandbox=2, provider=provider, preload=(), screen=None, step_timeout=60,
        idle_timeout=2, start_timeout=1 if moment == "start" else 60,
    )
    if moment == "start":
        die_soon()
    envs.reset(seed=1)
    die_soon()
    if moment == "step":
        stay = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]"
        stay += "; import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True).wait()"
        envs.step([stay] * 4)
    while moment == "reset":
        envs.reset()
    envs.close()
    time.sleep(60)
"""


def directories_of(pid):
    found = []
    for directory in owner._runtime_base().glob("*"):
        try:
            if OwnerProcess.parse((directory / "owner").read_text()).pid == pid:
                found.append(directory)
        except (OSError, ValueError):
            pass
    return found


def processes_in(directories):
    """Return the processes whose command lines contain one of the directories; zombies have no command line."""
    commands = [(process, " ".join(command_of(process))) for process in psutil.process_iter()]
    return [process for process, command in commands if any(str(directory) in command for directory in directories)]


def command_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("moment", "delays"),
    [
        ("start", [0.1, 0.5]),
        ("reset", [0.01]),
        ("step", [0.5]),
        ("close", [0.001, 0.05]),
    ],
)
def test_killed_trainer_leaves_no_sandbox(provider, request, moment, delays):
    engine = request.getfixturevalue("docker_engine") if provider == "docker" else None
    trainers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(TRAINER), provider, moment, str(delay)]) for delay in delays
    ]
    pids = {trainer.pid for trainer in trainers}
    assert [trainer.wait(60) for trainer in trainers] == [-signal.SIGKILL] * len(delays)

    def containers():
        found = our_containers(engine) if engine else ()
        return [container for container, whose in found if whose.pid in pids]

    def alive():
        directories = [directory for pid in pids for directory in directories_of(pid)]
        return processes_in(directories) + [container for container in containers() if container.status != "created"]

    assert eventually(lambda: not alive(), 15), alive()
    # The rest is removed by the next process that starts a sandbox.
    remove_orphans(engine) if engine else remove_orphaned_directories()
    assert not containers()
    assert not [directory for pid in pids for directory in directories_of(pid)]


def test_local_session_children_end_with_trainer(tmp_path):
    # The command line of a program in a session contains no directory, so it gets a unique argument.
    mark = f"300.{hash(tmp_path) % 10**9}"
    script = textwrap.dedent(TRAINER).replace("'300'", f"'{mark}'")
    trainer = subprocess.Popen([sys.executable, "-c", script, "local", "step", "100"])

    def sleepers():
        return [process for process in psutil.process_iter() if command_of(process) == ["sleep", mark]]

    with trainer:
        started = eventually(sleepers, 60)
        trainer.kill()
    assert started
    assert eventually(lambda: not sleepers(), 15)
