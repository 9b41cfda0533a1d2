"""Benchmark of tree search: branching from snapshots, and reset and replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from benchmarks.plan import BenchPlan, repeat
from benchmarks.report import Row
from coding_gym_search import BranchTree

__all__ = ["measure_branching", "prefix_of_equal_cost"]

_DEPTH = 10
_PREFIXES = (0, 1, 2, 5, 10, 20, 50, 200)
_MAIN = 50
_ROUNDS = 10
_EXPANSIONS = 5
_SNAPSHOTS = 16
_CODE = "total += 1"

Env: TypeAlias = gym.Env[Any, str]


def measure_branching(plan: BenchPlan) -> Iterator[Row]:
    """Measure expansions of a node at depth 10 for prefixes of several durations, alternating between the two methods.

    An expansion with branching is ``BranchTree.expand``: it restores the node's snapshot, takes a step, and takes a snapshot of
    the child. An expansion with replay resets, runs the actions of the prefix again, and takes the step. The
    duration of a prefix is what its ten actions sleep together.
    """
    branching, replay = [], []
    rounds = plan.times(_ROUNDS)
    note = f"n={rounds * _EXPANSIONS}"
    with closing(plan.make_env(screen=None)) as branching_env, closing(plan.make_env(screen=None)) as replay_env:
        for prefix in _PREFIXES:
            branched, replayed = _expansions(branching_env, replay_env, prefix, rounds=rounds)
            branching.append(branched)
            replay.append(replayed)
            yield Row(
                what=f"expansions after {_DEPTH} steps, {prefix} ms: branching", unit="/s", median=1e3 / branched, note=note
            )
            yield Row(what="  reset and replay", unit="/s", median=1e3 / replayed, note=note)
            at_least = 7 if prefix == _MAIN else None
            yield Row(what="  branching / replay", unit="x", median=replayed / branched, at_least=at_least)
    equal = prefix_of_equal_cost(_PREFIXES, branching, replay)
    note = "" if equal is not None else f"more than {_PREFIXES[-1]} ms"
    yield Row(what="prefix at which both are equally fast", unit="ms", median=equal, note=note)


def prefix_of_equal_cost(prefixes: Sequence[float], branching: Sequence[float], replay: Sequence[float]) -> float | None:
    """Return the duration of a prefix at which both methods take as long, interpolated linearly.

    If replay is never faster, that is the first prefix; if it always is, None.

    Args:
        prefixes: Durations of prefixes, ascending.
        branching: Duration of an expansion with branching, for each prefix.
        replay: Duration of an expansion with replay, for each prefix.

    Example:
        >>> prefix_of_equal_cost([0, 10, 20], [12, 12, 12], [3, 13, 23])
        9.0
    """
    saved = np.subtract(replay, branching)
    if not (saved >= 0).any():
        return None
    first = int(np.argmax(saved >= 0))
    around = slice(max(first - 1, 0), first + 1)
    return float(np.interp(0, saved[around], prefixes[around]))


def _expansions(branching_env: Env, replay_env: Env, prefix: float, *, rounds: int) -> tuple[float, float]:
    """Return the median durations of an expansion, with branching and with replay, in milliseconds."""
    action = f"time.sleep({prefix / _DEPTH / 1e3}); {_CODE}" if prefix else _CODE
    branching, replay = [], []
    _reach_node(branching_env, action)
    with BranchTree(branching_env, max_snapshots=_SNAPSHOTS) as tree:
        for _ in range(rounds):
            branching += repeat(_EXPANSIONS, lambda: tree.expand(tree.root, _CODE))
            replay += repeat(_EXPANSIONS, lambda: _expand_by_replay(replay_env, action))
    return float(np.median(branching)), float(np.median(replay))


def _expand_by_replay(env: Env, action: str) -> None:
    _reach_node(env, action)
    env.step(_CODE)


def _reach_node(env: Env, action: str) -> None:
    env.reset()
    for number in range(_DEPTH):
        env.step(action if number else f"import time; total = 0; {action}")
