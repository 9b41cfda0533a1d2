"""Local sandboxes in a control group that runs out of memory, as a job of a batch system does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.timing import eventually

JOB = """
    import gymnasium as gym
    import coding_gym

    env = gym.make("CodingEnv-v0", provider="local", mem="2g", screen=None, preload=[])
    for _ in range(2):
        env.reset(seed=1)
        env.step("x = 1")
        _, _, _, truncated, info = env.step("y = bytearray(b'1') * (1 << 30)")
        print(info["outcome"], truncated, info["state_lost"], env.step("6 * 7")[0]["stdout"])
    env.close()
"""


@pytest.fixture
def group():
    """Control group with a limit of 400 MB for memory including swap."""
    name = f"coding-gym-test-{os.getpid()}"
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    directory = v1 / name if v1.is_dir() else v2 / name
    try:
        directory.mkdir()
        limit = directory / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")
        limit.write_text(str(400 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            directory.rmdir()
        pytest.skip(f"control groups cannot be made here: {error}")
    yield directory
    assert eventually(lambda: not (directory / "cgroup.procs").read_text())
    directory.rmdir()


def test_job_out_of_memory_ends_steps_only(group):
    enter = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
    command = ["sh", "-c", enter, "sh", str(group), sys.executable, "-c", textwrap.dedent(JOB)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.stderr == ""
    assert ran.stdout.split("\n") == ["memory False True 42", "", "memory False True 42", "", ""]
