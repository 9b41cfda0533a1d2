"""Run episodes of every kind of behaviour for a while, and see whether anything is lost or grows.

    python tests/soak.py --minutes 10 --provider docker

Threads with ``CodingEnv`` and tasks with ``AsyncCodingEnv`` share a pool. What each behaviour must come to is known, so that a
wrong outcome is a fault, and so is an outcome ``infrastructure``. The exit code is 1 if there was one, or if something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from coding_gym import AsyncCodingEnv, CodingEnv, SandboxPool
from coding_gym.providers import Sandbox

STEP_TIMEOUT = 2.0
WARM_UP_SECONDS = 10.0


@dataclass(frozen=True)
class Behaviour:
    """What code does, and what may come of it."""

    code: str
    outcomes: tuple[str, ...]
    stdout: str | None = None


BEHAVIOURS = {
    "plain": Behaviour("print(sum(range(1000)))", ("ok",), "499500\n"),
    "value": Behaviour("{'a': [1, 2, 3]}", ("ok",), "{'a': [1, 2, 3]}\n"),
    "unicode": Behaviour("print('π ≈ 3,14 🙂')", ("ok",), "π ≈ 3,14 🙂\n"),
    "numpy": Behaviour("import numpy as np; print(np.ones((300, 300)).sum())", ("ok",), "90000.0\n"),
    "many objects": Behaviour("x = [object() for _ in range(300_000)]; del x; print('gone')", ("ok",), "gone\n"),
    "exception": Behaviour("def f(n): return f(n + 1)\nf(0)", ("error",)),
    "syntax": Behaviour("def", ("error",)),
    "exit": Behaviour("import sys; sys.exit(3)", ("error",)),
    "big code": Behaviour("x = 1\n" * 3_000 + "print(x)", ("ok",), "1\n"),
    "flood": Behaviour("import sys\nfor _ in range(3): print('x' * 2_000_000); print('y' * 500_000, file=sys.stderr)", ("ok",)),
    "subprocess": Behaviour("import subprocess; print(subprocess.run(['echo', 'hi'], capture_output=True).stdout)", ("ok",)),
    "threads": Behaviour(
        "import threading\nts = [threading.Thread(target=sum, args=(range(9),)) for _ in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; print('joined')",
        ("ok",),
    ),
    "daemon": Behaviour(
        "import subprocess; subprocess.Popen(['sh', '-c', 'sleep 600 & sleep 600'], start_new_session=True); print('left')",
        ("ok",),
        "left\n",
    ),
    "files": Behaviour(
        "import os\nfor i in range(300): open(f'f{i}', 'w').write('x' * 1000)\nprint(len(os.listdir()))", ("ok",)
    ),
    "shared memory": Behaviour("open('/dev/shm/psm_' + __import__('secrets').token_hex(4), 'w').write('x' * 10_000)", ("ok",)),
    "full disk": Behaviour("with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", ("error", "memory")),
    "loop": Behaviour("while True: pass", ("timeout",)),
    "sleep": Behaviour("import time; time.sleep(60)", ("timeout",)),
    "deaf": Behaviour("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", ("timeout",)),
    "crash": Behaviour("import ctypes; ctypes.string_at(0)", ("killed",)),
    "os._exit": Behaviour("import os; os._exit(5)", ("killed",)),
    "kill": Behaviour("import os, signal; os.kill(0, signal.SIGKILL)", ("killed",)),
    "fork bomb": Behaviour(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timeout", "killed", "memory", "error")
    ),
    "memory bomb": Behaviour("x = []\nwhile True: x.append(bytearray(1 << 24))", ("memory", "error", "timeout", "killed")),
}
BOMBS = {"fork bomb", "memory bomb", "full disk"}
"""Their neighbours in the same sandbox feel them: less room, fewer processes, less time."""


@dataclass
class Record:
    """What has happened so far.

    Attributes:
        has_bombs: Whether there are behaviours that others feel.
        lost: Steps with outcome ``infrastructure``.
        disturbed: Steps that a bomb, or a busy machine, may have kept from coming to what they must.
        wrong: The other steps that did not come to it.
    """

    has_bombs: bool = True
    episodes: int = 0
    steps: int = 0
    lost: int = 0
    disturbed: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def note(self, name: str, observation: dict[str, Any], info: dict[str, Any]) -> None:
        """Take note of a step."""
        behaviour, outcome = BEHAVIOURS[name], info["outcome"]
        as_it_must = outcome in behaviour.outcomes and (behaviour.stdout is None or observation["stdout"] == behaviour.stdout)
        with self.lock:
            self.steps += 1
            self.outcomes[name, outcome] += 1
            if outcome == "infrastructure":
                self.lost += 1
            elif not as_it_must and self.has_bombs and outcome in ("killed", "memory", "timeout", "error"):
                self.disturbed += 1
            elif not as_it_must:
                self.wrong.append(f"{name}: {outcome} {str(observation)[:500]}")

    def note_episode(self) -> None:
        """Take note of an episode's end."""
        with self.lock:
            self.episodes += 1


def draw_episode(chance: random.Random, bombs: float) -> list[str]:
    """Return the names of some behaviours; ``bombs`` is the probability that one is a bomb."""
    others = [name for name in BEHAVIOURS if name not in BOMBS]
    return [chance.choice(sorted(BOMBS) if chance.random() < bombs else others) for _ in range(chance.randint(1, 6))]


def run_episodes(pool: SandboxPool, record: Record, chance: random.Random, bombs: float, done: threading.Event) -> None:
    """Run episodes in an environment, and now and then make a new one."""
    while not done.is_set():
        with contextlib.closing(CodingEnv(pool=pool, screen=None, step_timeout=STEP_TIMEOUT)) as env:
            for _ in range(20):
                env.reset(seed=chance.randrange(1000))
                for name in draw_episode(chance, bombs):
                    observation, _, _, truncated, info = env.step(BEHAVIOURS[name].code)
                    record.note(name, observation, info)
                    if truncated or done.is_set():
                        break
                record.note_episode()
                if done.is_set():
                    return


async def run_episodes_async(
    pool: SandboxPool, record: Record, chance: random.Random, bombs: float, done: threading.Event
) -> None:
    """Run episodes in an asynchronous environment, and cancel some of its steps."""
    while not done.is_set():
        async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=STEP_TIMEOUT) as env:
            for _ in range(20):
                await env.reset(seed=chance.randrange(1000))
                for name in draw_episode(chance, bombs):
                    if chance.random() < 0.1:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.05):
                                await env.step("import time; time.sleep(30)")
                    observation, _, _, truncated, info = await env.step(BEHAVIOURS[name].code)
                    record.note(name, observation, info)
                    if truncated or done.is_set():
                        break
                record.note_episode()
                if done.is_set():
                    return


def measure(sandboxes: list[Sandbox]) -> Counter[str]:
    """Return what the servers of some sandboxes, and this process, take up."""
    gc.collect()
    here = psutil.Process()
    figures = Counter(
        {
            "client: memory (MB)": here.memory_full_info().uss >> 20,
            "client: descriptors": here.num_fds(),
            "client: threads": here.num_threads(),
        }
    )
    for sandbox in sandboxes:
        for process in server_processes(sandbox):
            role = "zygote" if "workers.zygote" in " ".join(process.cmdline()) else "server"
            figures[f"{role}s: memory (MB)"] += process.memory_info().rss >> 20
            figures[f"{role}s: descriptors"] += process.num_fds()
            if role == "server":
                figures["processes"] += len(process.children(recursive=True))
                root = Path(f"/proc/{process.pid}/root")
                for directory in ("workspaces", "tmp", "dev/shm"):
                    if (root / ".dockerenv").exists():
                        figures[f"files below /{directory}"] += sum(len(files) for _, _, files in os.walk(root / directory))
    return figures


def server_processes(sandbox: Sandbox) -> list[psutil.Process]:
    """Return the server of a sandbox and its zygote."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            is_server = "coding_gym_server" in command or "coding-gym-server" in command
            if is_server and "tini" not in command and belongs(process, sandbox):
                parent = process.parent()
                # Session roots and workers are forks of the zygote, and look like it.
                if parent is None or "workers.zygote" not in " ".join(parent.cmdline()):
                    found.append(process)
    return found


def belongs(process: psutil.Process, sandbox: Sandbox) -> bool:
    """Say whether a process is one of a sandbox's."""
    container = getattr(sandbox, "container", None)
    if container is not None:
        return container.id in Path(f"/proc/{process.pid}/cgroup").read_text()
    path = str(sandbox.address.socket_path)
    return any(path in " ".join(relative.cmdline()) for relative in (process, *process.parents()))


def main() -> int:
    """Run the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--provider", default="auto", choices=["auto", "docker", "local"])
    parser.add_argument("--size", type=int, default=2, help="sandboxes")
    parser.add_argument("--sessions", type=int, default=4, help="sessions of each")
    parser.add_argument("--max-episodes", type=int, default=None, help="episodes after which a sandbox is replaced")
    parser.add_argument(
        "--bombs", type=float, default=0.02, help="part of the steps that others feel; 0 makes all outcomes exact"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console, record, done = Console(), Record(has_bombs=arguments.bombs > 0), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with SandboxPool(
        size=arguments.size,
        max_episodes=arguments.max_episodes,
        provider=arguments.provider,
        sessions=arguments.sessions,
        mem="1g",
        disk="128m",
    ) as pool:
        sandboxes = [member.sandbox for member in pool._members]
        threads = [
            threading.Thread(
                target=run_episodes, args=(pool, record, random.Random(arguments.seed + index), arguments.bombs, done)
            )
            for index in range(arguments.size * arguments.sessions // 2)
        ]

        async def run_tasks() -> None:
            async with asyncio.TaskGroup() as tasks:
                for index in range(arguments.size * arguments.sessions // 2):
                    chance = random.Random(arguments.seed + 1000 + index)
                    tasks.create_task(run_episodes_async(pool, record, chance, arguments.bombs, done))

        threads.append(threading.Thread(target=lambda: asyncio.run(run_tasks())))
        for thread in threads:
            thread.start()
        started_at = time.monotonic()
        before: Counter[str] = Counter()
        try:
            time.sleep(min(WARM_UP_SECONDS, arguments.minutes * 20))
            before = settled(sandboxes)
            time.sleep(max(0, started_at + arguments.minutes * 60 - time.monotonic()))
        except KeyboardInterrupt:
            console.print("interrupted")
        seconds = time.monotonic() - started_at
        done.set()
        for thread in threads:
            thread.join()
        after = settled(sandboxes)
        grown = show(console, record, seconds, before, after, pool)
    return 1 if record.wrong or record.lost or grown else 0


def settled(sandboxes: list[Sandbox]) -> Counter[str]:
    """Measure several times, for steps come and go, and return the least of each figure."""
    samples = []
    for _ in range(5):
        with contextlib.suppress(psutil.Error, OSError):
            samples.append(measure(sandboxes))
        time.sleep(0.2)
    return Counter({name: min(sample[name] for sample in samples) for name in samples[0]})


def show(
    console: Console, record: Record, seconds: float, before: Counter[str], after: Counter[str], pool: SandboxPool
) -> list[str]:
    """Print what has happened; returns what grew beyond its tolerance."""
    outcomes = Table("behaviour", *sorted({outcome for _, outcome in record.outcomes}), title="Steps by outcome")
    for name in BEHAVIOURS:
        outcomes.add_row(name, *(str(record.outcomes[name, str(column.header)] or "") for column in outcomes.columns[1:]))
    console.print(outcomes)
    growth = Table("figure", "start", "end", "growth", title="What sandboxes and client take up")
    grown = []
    for name in sorted(before | after):
        tolerance = 20 if "memory" in name else 8 if "descriptors" in name else 4 if "threads" in name else 12
        too_much = after[name] - before[name] > tolerance
        grown += [name] if too_much else []
        growth.add_row(name, str(before[name]), str(after[name]), f"{after[name] - before[name]:+d}{' !' if too_much else ''}")
    console.print(growth)
    for fault in record.wrong[:20]:
        console.print(f"wrong: {fault}", style="red", markup=False)
    console.print(
        f"{record.episodes} episodes, {record.steps} steps in {seconds:.0f} s ({record.steps / seconds:.0f} a second), "
        f"{record.lost} lost, {record.disturbed} disturbed, {len(record.wrong)} wrong outcomes"
    )
    console.print(pool.stats, highlight=False)
    return grown


if __name__ == "__main__":
    sys.exit(main())
