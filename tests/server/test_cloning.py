"""Children that hold new namespaces."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

from tests.support.timing import eventually

_HOLDER = """
import time
from coding_gym_server.linux import cloning
cloning._IDLE_SECONDS = 1
with cloning.idle_child(0) as pid:
    print(pid, flush=True)
    time.sleep(60)
"""


def test_idle_child_does_not_outlive_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = psutil.Process(int(holder.stdout.readline()))
        assert child.ppid() == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, within=30)
