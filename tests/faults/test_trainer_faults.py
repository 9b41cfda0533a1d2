"""Trainers that are killed: their sandboxes end by themselves, and the next trainer removes the leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from coding_gym.sandbox import ownership as owner
from coding_gym.sandbox.docker.cleanup import our_containers, remove_orphans
from coding_gym.sandbox.ownership import OwnerProcess, remove_orphaned_directories
from tests.support.timing import eventually

pytestmark = pytest.mark.every_provider

MOMENTS = [("idle", 0.0), ("reset", 0.01), ("step", None), ("close", 0.001), ("close", 0.05), ("start", 0.1), ("start", 0.5)]
"""When a trainer is killed, and after how many seconds; None if the test kills it."""

TRAINERS = """
    import json, multiprocessing, os, signal, sys, threading, time
    import gymnasium as gym
    import coding_gym

    provider, duration, moments = sys.argv[1:]
    forked = multiprocessing.get_context("fork")
    ready, go_on = forked.Semaphore(0), forked.Event()

    def train(moment, delay):
        def die_soon():
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

        sandboxes = 2 if moment in ("start", "step") else 1
        envs = gym.make_vec(
            "CodingEnv-v0", num_envs=2 * sandboxes, sessions_per_sandbox=2, provider=provider, preload=(), screen=None,
            step_timeout=60, idle_timeout=2, start_timeout=1 if moment == "start" else 60,
        )
        if moment == "start":
            die_soon()
        envs.reset(seed=1)
        ready.release()
        go_on.wait()
        if moment == "step":
            stay = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]"
            stay += f"; import subprocess; subprocess.Popen(['sleep', '{duration}'], start_new_session=True).wait()"
            envs.step([stay] * 4)
        die_soon()
        while moment == "reset":
            envs.reset()
        if moment == "close":
            envs.close()
        time.sleep(60)

    trainers = [(moment, forked.Process(target=train, args=(moment, delay))) for moment, delay in json.loads(moments)]
    starting = [trainer for moment, trainer in trainers if moment == "start"]
    others = [trainer for moment, trainer in trainers if moment != "start"]
    for trainer in others:
        trainer.start()
    assert all([ready.acquire(timeout=60) for _ in others])
    # A trainer that starts removes what dead trainers have left, so the others die later.
    for trainer in starting:
        trainer.start()
    for trainer in starting:
        trainer.join()
    go_on.set()
    print(json.dumps([[moment, trainer.pid] for moment, trainer in trainers]), flush=True)
    for _, trainer in trainers:
        trainer.join()
    print(json.dumps([trainer.exitcode for _, trainer in trainers]))
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


def test_killed_trainers_leave_no_sandboxes(provider, request):
    engine = request.getfixturevalue("docker_engine") if provider == "docker" else None
    # The command line of a program in a session contains no directory, so it gets a unique argument.
    duration = f"300.{os.getpid()}"
    command = [sys.executable, "-c", textwrap.dedent(TRAINERS), provider, duration, json.dumps(MOMENTS)]

    def sleepers():
        return [process for process in psutil.process_iter() if command_of(process) == ["sleep", duration]]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainers:
        started = json.loads(trainers.stdout.readline())
        stepping = dict(started)["step"]
        assert eventually(lambda: len(sleepers()) == 4, 60)
        assert len(directories_of(stepping)) == 2
        os.kill(stepping, signal.SIGKILL)
        output, _ = trainers.communicate(timeout=60)
    assert json.loads(output) == [-signal.SIGKILL] * len(MOMENTS)
    pids = {pid for _, pid in started}

    def containers():
        found = our_containers(engine) if engine else ()
        return [container for container, whose in found if whose.pid in pids]

    def alive():
        directories = [directory for pid in pids for directory in directories_of(pid)]
        return (
            sleepers()
            or processes_in(directories)
            or [container for container in containers() if container.status != "created"]
        )

    assert eventually(lambda: not alive(), 60), alive()
    # The rest is removed by the next process that starts a sandbox.
    remove_orphans(engine) if engine else remove_orphaned_directories()
    assert not containers()
    assert not [directory for pid in pids for directory in directories_of(pid)]
