"""Runs episodes of all kinds for a while, and checks that their results are correct and that resource usage does not grow.

Run ``python -m tests.soaking --minutes 10`` in the root of the repository, as root: it inspects the processes of sandboxes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from random import Random

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coding_gym import AsyncCodingEnv, CodingEnv, SandboxPool
from coding_gym.errors import CodingGymError
from tests.soaking.behaviors import BEHAVIORS, Behavior
from tests.soaking.measures import TOLERANCES, of_client, of_sandbox

_WARM_UP_SECONDS = 20
_SETTLED_WITHIN = 30
_SHOWN_FAULTS = 20

Measures = dict[str, dict[str, float]]

console = Console(width=120)


@dataclass
class Tally:
    """Results of all episodes so far."""

    episodes: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, outcome: str) -> None:
        with self.lock:
            self.outcomes.setdefault(name, Counter())[outcome] += 1

    def blame(self, counter: Counter[str], name: str, what: str) -> None:
        with self.lock:
            counter[name] += 1
            self.faults.append(f"{name}: {what}")

    @property
    def steps(self) -> int:
        return sum(map(Counter.total, self.outcomes.values()))


class Soak:
    """Agents in threads and in an event loop, on two pools: one whose sandboxes last for the whole run, one that recycles them.

    Args:
        lasting: The pool whose sandboxes last for the whole run.
        recycling: The pool that recycles its sandboxes.
        seed: Seed of the agents' behavior.
    """

    def __init__(self, lasting: SandboxPool, recycling: SandboxPool, seed: int) -> None:
        self._pools = (lasting, recycling)
        self._seeds = Random(seed)
        self._over = threading.Event()
        self.tally = Tally()

    def run(self, seconds: float) -> None:
        """Let the agents work for ``seconds``, and wait until all of them have finished."""
        self._over.clear()
        halves = [(pool, Random(self._seeds.random())) for pool in self._pools for _ in range(pool.size * pool.config.sessions)]
        threads = [threading.Thread(target=self._work, args=half, daemon=True) for half in halves[::2]]
        threads.append(threading.Thread(target=asyncio.run, args=(self._work_async(halves[1::2]),), daemon=True))
        started = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            self._over.wait(seconds)
        finally:
            self._over.set()
            self.tally.seconds += time.monotonic() - started
            for thread in threads:
                thread.join()

    def _episodes(self, rng: Random, *, can_cancel: bool) -> Iterator[tuple[str, Behavior]]:
        names = [name for name in BEHAVIORS if can_cancel or name != "step canceled"]
        weights = [BEHAVIORS[name].weight for name in names]
        while not self._over.is_set():
            (name,) = rng.choices(names, weights)
            yield name, BEHAVIORS[name]

    def _work(self, pool: SandboxPool, rng: Random) -> None:
        """Run episodes in one blocking environment."""
        with closing(CodingEnv(pool=pool, screen=None)) as env:
            for name, behavior in self._episodes(rng, can_cancel=False):
                env.step_timeout = behavior.step_timeout
                try:
                    env.reset(seed=rng.randrange(1000))
                    for step in behavior.steps(rng):
                        observation, _, _, _, info = env.step(step.code)
                        if not self._judge(name, step, observation, info):
                            break
                except CodingGymError as error:
                    self.tally.blame(self.tally.lost, name, repr(error))
                self.tally.episodes[name] += 1
                if rng.random() < 0.1:
                    env.close()

    async def _work_async(self, agents: list[tuple[SandboxPool, Random]]) -> None:
        await asyncio.gather(*(self._work_in_turn(pool, rng) for pool, rng in agents))

    async def _work_in_turn(self, pool: SandboxPool, rng: Random) -> None:
        """Run episodes, each in a separate asynchronous environment."""
        for name, behavior in self._episodes(rng, can_cancel=True):
            try:
                async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=behavior.step_timeout) as env:
                    for step in behavior.steps(rng):
                        try:
                            async with asyncio.timeout(step.cancel_after):
                                observation, _, _, _, info = await env.step(step.code)
                        except TimeoutError:
                            self.tally.note(name, "canceled")
                            continue
                        if not self._judge(name, step, observation, info):
                            break
            except CodingGymError as error:
                self.tally.blame(self.tally.lost, name, repr(error))
            self.tally.episodes[name] += 1

    def _judge(self, name: str, step, observation, info) -> bool:
        """Record the result of a step; return whether the episode can continue."""
        self.tally.note(name, info["outcome"])
        shown = f"{step.code[:300]!r}\n    gave {info} {observation['stdout'][-300:]!r} {observation['stderr'][-600:]!r}"
        if info["outcome"] == "infrastructure":
            self.tally.blame(self.tally.lost, name, shown)
            return False
        if fault := step.fault(observation, info):
            self.tally.blame(self.tally.wrong, name, f"{fault}:\n    {shown}")
            return False
        return True


def measure(lasting: SandboxPool, recycling: SandboxPool) -> Measures:
    """Measure the sandboxes and the client, once the values have settled."""
    deadline = time.monotonic() + _SETTLED_WITHIN
    found = _measure_now(lasting, recycling)
    while time.monotonic() < deadline:
        time.sleep(1)
        before, found = found, _measure_now(lasting, recycling)
        if all(before[owner] == {**found[owner], **_memory(before[owner])} for owner in found):
            break
    return found


def _memory(measures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in measures.items() if name.endswith("MB")}


def _measure_now(lasting: SandboxPool, recycling: SandboxPool) -> Measures:
    found = {f"sandbox {number}": of_sandbox(member.sandbox) for number, member in enumerate(lasting._members, 1)}
    found["client"] = of_client(lasting.size + recycling.size)
    return found


def show_outcomes(tally: Tally) -> None:
    """Print the results of the steps of each behavior."""
    title = f"{tally.episodes.total()} episodes, {tally.steps} steps, {tally.steps / max(tally.seconds, 1e-9):.0f} steps/s"
    table = Table("behavior", "episodes", "outcomes", "wrong", "lost", title=title)
    for name in BEHAVIORS:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.outcomes.get(name, Counter()).items()))
        table.add_row(name, str(tally.episodes[name]), outcomes, str(tally.wrong[name] or ""), str(tally.lost[name] or ""))
    console.print(table)
    for fault in tally.faults[:_SHOWN_FAULTS]:
        console.print(f"[red]{escape(fault)}[/red]")
    if len(tally.faults) > _SHOWN_FAULTS:
        console.print(f"[red]and {len(tally.faults) - _SHOWN_FAULTS} more[/red]")


def show_growth(before: Measures, after: Measures) -> bool:
    """Print the growth of each value; return whether any of them exceeds its tolerance."""
    table = Table("", "", "start", "end", "growth", "tolerated")
    grew = False
    for owner, measures in before.items():
        for name, start in measures.items():
            growth = after[owner][name] - start
            too_much = growth > TOLERANCES[name]
            grew = grew or too_much
            numbers = [
                f"{number:.1f}" if name.endswith("MB") else f"{number:.0f}" for number in (start, after[owner][name], growth)
            ]
            table.add_row(owner, name, *numbers, f"{TOLERANCES[name]:g}", style="red" if too_much else None)
    console.print(table)
    return grew


def main() -> int:
    """Run the soak test, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--provider", choices=("docker", "local"), default="docker")
    parser.add_argument("--size", type=int, default=2, help="sandboxes that live through it all")
    parser.add_argument("--sessions", type=int, default=4, help="sessions of each")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    options = {
        "provider": arguments.provider,
        "sessions": arguments.sessions,
        "mem": "1g",
        "disk": "64m",
        "acquire_timeout": 120,
    }
    with ExitStack() as stack:
        lasting = stack.enter_context(SandboxPool(arguments.size, max_episodes=None, **options))
        recycling = stack.enter_context(SandboxPool(1, max_episodes=20, **options))
        soak = Soak(lasting, recycling, arguments.seed)
        before = after = None
        try:
            soak.run(_WARM_UP_SECONDS)
            before = measure(lasting, recycling)
            soak.run(arguments.minutes * 60)
        except KeyboardInterrupt:
            console.print("interrupted")
        show_outcomes(soak.tally)
        console.print(f"sandboxes that live through it all: {lasting.stats}\nthose that are recycled: {recycling.stats}")
        grew = False
        if before is not None:
            after = measure(lasting, recycling)
            grew = show_growth(before, after)
        return int(grew or bool(soak.tally.faults) or lasting.stats.lost + recycling.stats.lost > 0)


if __name__ == "__main__":
    sys.exit(main())
