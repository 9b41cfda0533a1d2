"""``SessionRoot``, in a pid namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The init of a fork is in another Landlock domain, so that its root may not signal it. Here, it has another user.
_ROOT = """
import os, signal, subprocess
from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT
from coding_gym_server.linux import mounts, procfs
from coding_gym_server.linux.cloning import clone_into
from coding_gym_server.linux.process_root import ProcessRoot
from coding_gym_server.zygote.session_root import ForkSlot, SessionRoot

def pause():
    while True:
        signal.pause()

init = clone_into(mounts.NEW_PROCESSES | mounts.NEW_MOUNTS)
if init:
    os.waitpid(init, 0)
    raise SystemExit
subprocess.run("mount --make-rprivate / && mount -t proc proc /proc", shell=True, check=True)
if (other := clone_into(mounts.NEW_PROCESSES)) == 0:
    pause()
os.setresuid(65534, 65534, 65534)
if os.fork() == 0:
    pause()
root = SessionRoot.__new__(SessionRoot)
ProcessRoot.__init__(root, scopes_signals=False, adopted_by_init=False)
root._slots, root._frozen, root._doomed, root._idle_inits, root._ended_inits = {}, set(), {}, [], set()
root._inits = lambda: {other}
root._kill_at_once(ForkSlot(FIRST_SLOT))
print(procfs.children(os.getpid()) == {other}, flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="makes pid namespaces")
def test_end_of_a_session_does_not_wait_for_the_inits_of_its_forks():
    ended = subprocess.run([sys.executable, "-c", _ROOT], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "True\n"
