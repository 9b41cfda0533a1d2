"""Containers that run out of memory: the processes that used it are killed, and the sandbox survives."""

from __future__ import annotations

import contextlib
import textwrap

import gymnasium as gym
import pytest

from tests.faults.episodes import SMALL, outcome, shown
from tests.support.sandbox_processes import server_of, zygote_of
from tests.support.timing import eventually

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("programs_in_memory")]

# The file systems are larger than the memory, so files can exhaust it, too.
MEMORY = {"provider": "docker", "mem": "160m", "disk": "512m", "shm_size": "512m"}

EAT = "x = []\nwhile True: x.append(b'1' * (1 << 22))"
EAT_TOGETHER = """
    import os, time
    for _ in range(40):
        if os.fork() == 0:
            x = bytearray(b"1") * (8 << 20)
            time.sleep(60)
            os._exit(0)
    statuses = [os.wait()[1]]
    os.killpg(0, 9)
"""
EAT_TOGETHER_AS_PROGRAMS = """
    import subprocess, sys
    eat = [sys.executable, "-c", "import time; x = bytearray(b'1') * (8 << 20); time.sleep(60)"]
    eaters = [subprocess.Popen(eat) for _ in range(40)]
    while all(eater.poll() is None for eater in eaters):
        pass
    for eater in eaters:
        eater.kill()
        eater.wait()
"""


@pytest.fixture(scope="module")
def programs_in_memory(docker_engine):
    """Read what interpreters need into the page cache, which is charged to the container that reads a file first.

    The kernel reclaims it for as long as it can, so if these pages were charged to the container under test, everything in it
    would slow down before anything is killed.
    """
    options = {**SMALL, "provider": "docker", "mem": "2g"}
    with contextlib.closing(gym.make("CodingEnv-v0", **options).unwrapped) as env:
        env.reset(seed=1)
        assert outcome(env, "import os; os.kill(os.getpid(), 9)") == ("killed", 137, True)
        assert shown(env, "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time']).returncode") == "0\n"


@pytest.fixture(scope="module")
def shared(programs_in_memory):
    with contextlib.closing(gym.make("CodingEnv-v0", **{**SMALL, **MEMORY}).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    env = shared
    env.reset(seed=1)
    shown(env, "open('mark', 'w').close()")
    container, servants = env.sandbox.container.id, [server_of(env.sandbox), zygote_of(env.sandbox)]
    yield env
    # It is still the same sandbox, and intact.
    env.reset(seed=2)
    assert shown(env, "import os; sum(map(os.listdir, ('.', '/tmp', '/dev/shm')), [])") == "[]\n"
    # The files of the previous episode are removed in the background, which frees their memory.
    large = f"{64 << 20}\n"
    assert eventually(lambda: env.step("x = bytearray(b'1') * (64 << 20); len(x)")[0]["stdout"] == large)
    assert env.sandbox.container.id == container
    assert [server_of(env.sandbox), zygote_of(env.sandbox)] == servants


@pytest.mark.parametrize("code", [EAT, "x = bytearray(b'1') * (1 << 30)"], ids=["slowly", "at once"])
def test_memory_exhaustion_kills_only_worker(env, code):
    assert outcome(env, code) == ("memory", 137, True)
    assert shown(env, "import os; 'x' in globals(), os.listdir()") == "(False, ['mark'])\n"


def test_memory_exhaustion_kills_only_child(env):
    code = f"import subprocess, sys; x = 1; subprocess.run([sys.executable, '-c', {EAT!r}]).returncode"
    assert shown(env, code) == "-9\n"
    assert shown(env, "x") == "1\n"


@pytest.mark.parametrize("code", [EAT_TOGETHER, EAT_TOGETHER_AS_PROGRAMS], ids=["forks", "programs"])
def test_memory_exhaustion_by_many_processes_keeps_session(env, code):
    for _ in range(3):
        assert outcome(env, code)[0] in ("ok", "memory")
        assert shown(env, "import os; os.listdir()") == "['mark']\n"


@pytest.mark.parametrize("directory", [".", "/tmp", "/dev/shm"])
def test_memory_exhaustion_by_files_kills_worker(env, directory):
    fill = f"with open({directory + '/big'!r}, 'wb') as f:\n    while True: f.write(bytes(1 << 20))"
    assert outcome(env, fill) == ("memory", 137, True)
    # The files are kept until the episode ends.
    assert int(shown(env, f"import os; os.path.getsize({directory + '/big'!r})")) > 32 << 20


def test_files_of_last_episode_leave_memory_to_next(env):
    for seed in range(5):
        outcome(env, "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))")
        env.reset(seed=seed)
        assert shown(env, "x = bytearray(b'1') * (48 << 20); import os; len(x) >> 20, os.listdir()") == "(48, [])\n"


def test_memory_exhaustion_leaves_neighbor_sessions_unaffected(make):
    envs = make(**{**MEMORY, "mem": "256m"}, num_envs=4)
    envs.reset(seed=1)
    envs.step(["import os; x = os.urandom(16 << 20)"] * 4)
    for _ in range(2):
        observations, _, _, truncations, infos = envs.step(["len(x)", "len(x)", EAT, "len(x)"])
        assert list(infos["outcome"]) == ["ok", "ok", "memory", "ok"]
        assert list(observations["stdout"]) == [f"{16 << 20}\n"] * 2 + ["", f"{16 << 20}\n"]
        assert not truncations.any()


def test_memory_exhaustion_by_many_processes_keeps_sandbox(make):
    # The kernel kills the largest process of any session: others may lose their interpreters, but not their sessions.
    envs = make(**{**MEMORY, "mem": "256m"}, num_envs=4)
    envs.reset(seed=1)
    container = envs.envs[0].sandbox.container.id
    for _ in range(3):
        _, _, _, truncations, infos = envs.step(["1", "1", textwrap.dedent(EAT_TOGETHER), "1"])
        assert not truncations.any()
        # "killed" if the code reaches its end, where it kills its own process group.
        assert set(infos["outcome"]) <= {"ok", "memory", "killed"}
    assert envs.step(["1"] * 4)[0]["stdout"] == ("1\n",) * 4
    assert envs.envs[0].sandbox.container.id == container
