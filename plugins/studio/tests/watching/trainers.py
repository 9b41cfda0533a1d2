"""Trainers in their own processes, whose environments report without sandboxes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

__all__ = ["PREAMBLE", "running_trainer", "tell"]

PREAMBLE = """
import os, sys, threading, time
import coding_gym
import coding_gym_studio
from coding_gym.telemetry import Group, SessionReporter

def session(group=None, index=None, **options):
    reporter = SessionReporter("CodingEnv-v0", **options)
    if group is not None:
        reporter.place(group, index)
    return reporter

def reset(reporter, label=None, picture=None):
    reporter.resetting()
    reporter.begun(label, picture)

def step(reporter, action, stdout="", outcome="ok", reward=0.0, terminated=False, picture=None, **info):
    reporter.running(action)
    obs = {"stdout": stdout, "stderr": "", "exit_code": 0}
    reporter.stepped((obs, reward, terminated, False, {"outcome": outcome, **info}), picture)

def wait():
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def running_trainer(program: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that calls ``wait()`` until the block ends, or a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line == "ready\n", f"the trainer printed {line!r}"
        yield process
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()
        process.stdout.close()


def tell(process: subprocess.Popen[str]) -> None:
    """Let a trainer continue that waits."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
