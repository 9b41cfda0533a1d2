from __future__ import annotations

import subprocess
import sys

CODE = """
import os, select, signal
from coding_gym_server.worker.widgets import wakeup

handled = []
for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGURG):
    signal.signal(number, lambda number, _: handled.append(number))
read = wakeup._reading_end()
for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGURG):
    os.kill(os.getpid(), number)
    print(number in handled, bool(select.select([read], [], [], 0)[0]), end=" ")
wakeup._drain(read)
assert not select.select([read], [], [], 0)[0]
assert wakeup._reading_end() is read and len(wakeup.wakeup_descriptors()) == 2

# What a copy of the process shares with it is replaced.
wakeup.forget_wakeups()
assert wakeup.wakeup_descriptors() == set() and signal.set_wakeup_fd(-1) == -1

# A program that handles signals by itself keeps doing so.
own = os.eventfd(0, os.EFD_NONBLOCK)
signal.set_wakeup_fd(own)
assert wakeup._reading_end() is None and signal.set_wakeup_fd(own) == own
"""


def test_only_the_question_for_widgets_wakes_event_loops():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True False True False True True ", "")
