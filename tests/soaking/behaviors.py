"""Behaviors of agents, harmless and harmful, and their expected results."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["BEHAVIORS", "Behavior", "Step"]

_SHORTAGE = ("Resource temporarily unavailable", "can't start new thread", "Cannot allocate memory", "MemoryError")
"""Errors that code may encounter while a neighbor in the same sandbox exhausts shared resources."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step and its expected result.

    Attributes:
        code: The source code.
        outcomes: Permitted values of ``info["outcome"]``.
        exit_codes: Permitted exit codes; any if empty.
        state_lost: Expected ``info["state_lost"]``; None for either.
        stdout: Expected stdout, exactly; None for anything.
        stderr: Text that stderr must contain.
        shares: Whether it may fail because a neighbor has exhausted a shared resource.
        cancel_after: Seconds after which the step is canceled; None for never. Only an asynchronous environment can.
    """

    code: str
    outcomes: tuple[str, ...] = ("ok",)
    exit_codes: tuple[int, ...] = ()
    state_lost: bool | None = False
    stdout: str | None = None
    stderr: str = ""
    shares: bool = False
    cancel_after: float | None = None

    def fault(self, observation: dict[str, Any], info: dict[str, Any]) -> str:
        """Return a description of what is wrong with the result; empty if it is as expected."""
        if self.shares and info["outcome"] == "error" and any(sign in observation["stderr"] for sign in _SHORTAGE):
            return ""
        found = []
        if info["outcome"] not in self.outcomes:
            found.append(f"outcome {info['outcome']}, not {' or '.join(self.outcomes)}")
        if self.exit_codes and observation["exit_code"] not in self.exit_codes:
            found.append(f"exit code {observation['exit_code']}, not {self.exit_codes}")
        if self.state_lost is not None and info["state_lost"] is not self.state_lost:
            found.append(f"state_lost is {info['state_lost']}")
        if self.stdout is not None and observation["stdout"] != self.stdout:
            found.append(f"stdout is not {self.stdout[:80]!r}")
        if self.stderr not in observation["stderr"]:
            found.append(f"stderr lacks {self.stderr!r}")
        return "; ".join(found)


@dataclass(frozen=True)
class Behavior:
    """Behavior of an agent in an episode.

    Attributes:
        steps: Generates its steps.
        step_timeout: Time limit of each step in seconds.
        weight: Relative frequency of the behavior.
    """

    steps: Callable[[Random], Iterator[Step]]
    step_timeout: float = 60.0
    weight: int = 4


def _plain(rng: Random) -> Iterator[Step]:
    for _ in range(rng.randrange(1, 20)):
        left, right = rng.randrange(1000), rng.randrange(1000)
        yield Step(code=f"print({left} + {right})", stdout=f"{left + right}\n")
        yield Step(code=f"{left} * {right}", stdout=f"{left * right}\n")


def _state(rng: Random) -> Iterator[Step]:
    yield Step(code="assert 'items' not in globals()\nitems = []", stdout="")
    for number in range(rng.randrange(5, 30)):
        yield Step(code=f"items.append({number}); print(sum(items))", stdout=f"{sum(range(number + 1))}\n")
    yield Step(code="def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(15)", stdout="610\n")


def _exceptions(rng: Random) -> Iterator[Step]:
    yield Step(code="x = 1")
    yield Step(
        code="print('so far'); 1 / 0", outcomes=("error",), exit_codes=(1,), stdout="so far\n", stderr="ZeroDivisionError"
    )
    yield Step(code="def f(: pass", outcomes=("error",), exit_codes=(1,), stderr="SyntaxError")
    yield Step(code="def f(): f()\nf()", outcomes=("error",), exit_codes=(1,), stderr="RecursionError")
    yield Step(code="x", stdout="1\n")


def _exits(rng: Random) -> Iterator[Step]:
    code = rng.randrange(1, 256)
    yield Step(code="x = 1")
    yield Step(code=f"import sys; sys.exit({code})", outcomes=("error",), exit_codes=(code,))
    yield Step(code="sys.exit()", exit_codes=(0,))
    yield Step(code="x", stdout="1\n")


def _dies(rng: Random) -> Iterator[Step]:
    code, exit_code = rng.choice(
        [
            ("import os; os._exit(7)", 7),
            ("import ctypes; ctypes.string_at(0)", 139),
            ("import os; os.kill(os.getpid(), 9)", 137),
            ("import os; os.abort()", 134),
        ]
    )
    yield Step(code="import os; x = 1; os.mkdir('kept')")
    # The sender of a SIGKILL is unknown: it is reported as "memory" if a neighbor exhausts the memory at that time.
    outcomes = ("killed", "memory") if exit_code == 137 else ("killed",)
    yield Step(code=code, outcomes=outcomes, exit_codes=(exit_code,), state_lost=True)
    yield Step(code="import os; 'x' in globals(), os.listdir()", stdout="(False, ['kept'])\n")


def _hangs(rng: Random) -> Iterator[Step]:
    code = rng.choice(["while True: pass", "import time; time.sleep(99)", "import threading; threading.Event().wait()"])
    yield Step(code="x = 1")
    # Next to a fork bomb, an interrupt may take longer than the grace period.
    yield Step(code=f"print('begun')\n{code}", outcomes=("timeout",), exit_codes=(124,), state_lost=None, stdout="begun\n")
    yield Step(code="print('again')", stdout="again\n")


def _ignores_interrupts(rng: Random) -> Iterator[Step]:
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(99)"
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(99)\n    except KeyboardInterrupt:\n        pass"
    yield Step(code=rng.choice([deaf, stubborn]), outcomes=("timeout",), exit_codes=(124,), state_lost=True)
    yield Step(code="1", stdout="1\n")


def _is_canceled(rng: Random) -> Iterator[Step]:
    yield Step(code="x = 1")
    yield Step(code="import time; time.sleep(30)", cancel_after=rng.random() / 4)
    # As after a timeout, the variables may be lost next to a fork bomb.
    yield Step(code="print('again')", stdout="again\n")


def _floods(rng: Random) -> Iterator[Step]:
    yield Step(code="import sys\nfor _ in range(300):\n    print('o' * 9999)\n    print('e' * 9999, file=sys.stderr)")
    yield Step(code="import os\nfor _ in range(99):\n    os.write(1, os.urandom(65536))")
    yield Step(code="print('after')", stdout="after\n")


def _big_values(rng: Random) -> Iterator[Step]:
    yield Step(code="x = list(range(300_000)); x")
    yield Step(code="'a' * 5_000_000")
    yield Step(code="len(x)", stdout="300000\n")


_FILL = """
try:
    with open("big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError:
    print("full")
"""


def _fills_the_disk(rng: Random) -> Iterator[Step]:
    yield Step(code=_FILL, stdout="full\n")
    yield Step(code="import os; os.remove('big'); os.makedirs('a/b/c'); os.listdir()", stdout="['a']\n")


def _many_files(rng: Random) -> Iterator[Step]:
    yield Step(code="for number in range(500): open(f'{number}', 'w').close()\nimport os; len(os.listdir())", stdout="500\n")


_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(999)
    os._exit(0)
"""


def _daemons(rng: Random) -> Iterator[Step]:
    yield Step(code="import subprocess; _ = subprocess.Popen(['sleep', '999'], start_new_session=True)", shares=True)
    yield Step(code=_DAEMON, shares=True)
    yield Step(code="from multiprocessing import shared_memory as m; s = m.SharedMemory(create=True, size=9999)", shares=True)
    yield Step(code="1", stdout="1\n")


def _threads(rng: Random) -> Iterator[Step]:
    yield Step(
        code="import threading, time\nfor _ in range(8): threading.Thread(target=time.sleep, args=(999,), daemon=True).start()",
        shares=True,
    )
    yield Step(code="1", stdout="1\n")


_FORKS = """
import os
while True:
    os.fork()
"""
_SPAWNS = """
import threading
while True:
    threading.Thread(target=threading.Event().wait).start()
"""


def _bombs(rng: Random) -> Iterator[Step]:
    yield Step(code=rng.choice([_FORKS, _SPAWNS]), outcomes=("killed", "timeout", "error"), state_lost=None)
    # Remaining processes of the bomb may be killed, together with the interpreter, until the next episode.
    yield Step(code="1", outcomes=("ok", "killed", "memory", "timeout"), state_lost=None)


def _eats_memory(rng: Random) -> Iterator[Step]:
    yield Step(code="x = b'x' * (3 << 30)", outcomes=("memory", "killed", "error"), state_lost=None)
    yield Step(code="print(1)", stdout="1\n", state_lost=None)


def _unicode(rng: Random) -> Iterator[Step]:
    text = "".join(rng.choice("äß漢字🎉𝔘é\u202e\u0301") for _ in range(rng.randrange(1, 500)))
    yield Step(code=f"print({text!r})", stdout=f"{text}\n")
    yield Step(code=f"täxt = {text!r}; len(täxt)", stdout=f"{len(text)}\n")


def _huge_code(rng: Random) -> Iterator[Step]:
    words = "".join(rng.choice(string.ascii_letters) for _ in range(80_000))
    yield Step(code=f"x = {words!r}\nlen(x)", stdout="80000\n")
    yield Step(code="\n".join(f"y{number} = {number}" for number in range(5000)) + "\ny4999", stdout="4999\n")


def _many_objects(rng: Random) -> Iterator[Step]:
    yield Step(
        code="import gc\nrings = []\nfor _ in range(100_000):\n    ring = []\n    ring.append(ring)\n    rings.append(ring)"
    )
    yield Step(code="del rings, ring; gc.collect() >= 100_000", stdout="True\n")


_PLOT = """
import io
import matplotlib.pyplot as plt
_ = plt.plot([1, 2, 3])
file = io.BytesIO()
plt.savefig(file)
len(file.getvalue()) > 1000
"""


def _libraries(rng: Random) -> Iterator[Step]:
    yield Step(code="import numpy as np; a = np.ones((300, 300)); int((a @ a).sum())", stdout="27000000\n", shares=True)
    yield Step(code="import pandas as pd; int(pd.DataFrame({'x': range(1000)}).x.sum())", stdout="499500\n")
    yield Step(code=_PLOT, stdout="True\n")


BEHAVIORS = {
    "plain code": Behavior(_plain, weight=20),
    "state across steps": Behavior(_state, weight=20),
    "exceptions": Behavior(_exceptions, weight=10),
    "sys.exit": Behavior(_exits),
    "death": Behavior(_dies, weight=8),
    "timeout": Behavior(_hangs, step_timeout=2),
    "interrupts ignored": Behavior(_ignores_interrupts, step_timeout=2),
    "step canceled": Behavior(_is_canceled),
    "floods of output": Behavior(_floods),
    "big values": Behavior(_big_values),
    "full disk": Behavior(_fills_the_disk, weight=2),
    "many files": Behavior(_many_files),
    "daemons": Behavior(_daemons, weight=8),
    "threads": Behavior(_threads),
    "fork bomb": Behavior(_bombs, step_timeout=5, weight=2),
    "memory bomb": Behavior(_eats_memory, weight=2),
    "unicode": Behavior(_unicode, weight=8),
    "huge code": Behavior(_huge_code),
    "many objects": Behavior(_many_objects),
    "libraries": Behavior(_libraries),
}
