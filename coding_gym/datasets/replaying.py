"""``replay``: re-execution of recorded episodes in fresh sandboxes, to check that they are reproducible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coding_gym.datasets.dataset import Dataset, load
from coding_gym.datasets.env_factory import EnvSource, Wrapper, recorded_factory
from coding_gym.datasets.episode import Episode, decode_episode, encode_episode
from coding_gym.datasets.episode_runner import EpisodeRunner
from coding_gym.datasets.policies.base import Actor, EpisodeStart, Policy
from coding_gym.datasets.progress import EpisodeBar
from coding_gym.datasets.rollout import EpisodePlan
from coding_gym.sandbox.pool import SandboxPool

__all__ = ["Difference", "first_difference", "replay"]

_SHOWN_CHARS = 300
_COMPARED_FIELDS = ("observation", "reward", "terminated", "truncated", "info")


@dataclass(frozen=True)
class Difference:
    """First divergence of a replayed episode from its recording.

    Attributes:
        episode: Index of the episode.
        step: Index of the step; 0 is the reset.
        field: Name of the field, such as ``observation.stdout`` or ``info.outcome``; ``steps`` if the number of steps differs.
        expected: Recorded value.
        found: Replayed value.
    """

    episode: int
    step: int
    field: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        where = f"episode {self.episode}, step {self.step}, {self.field}"
        return f"{where}: expected {_show(self.expected)}, found {_show(self.found)}"


def replay(
    dataset: Dataset | Path | str,
    episode: int | Iterable[int] | None = None,
    *,
    env: EnvSource | None = None,
    wrappers: Sequence[Wrapper] = (),
    env_options: Mapping[str, Any] | None = None,
    pool: SandboxPool | None = None,
    sessions: int = 16,
    progress: bool | None = None,
) -> list[Difference]:
    """Reset environments with the recorded seeds, take the recorded actions, and compare the results with the recording.

    Args:
        dataset: The dataset, or its directory.
        episode: Index of an episode, or several indices; all episodes if None.
        env: Callable that makes the environments, if the dataset was collected from a callable.
        wrappers: Wrappers that the dataset was collected with, the innermost first.
        env_options: Options that override the recorded ones, such as ``{"provider": "docker"}``.
        pool: Existing sandbox pool to use instead of sandboxes as recorded.
        sessions: Maximum number of concurrent episodes.
        progress: Whether to show a progress bar; if None, only if stderr is a terminal.

    Returns:
        The first difference of each episode that differs; empty if all episodes are equal.

    Raises:
        DatasetError: If the dataset or an episode does not exist, or the environment does not match the recorded one.
        ProviderError: If no sandbox is available.
    """
    recorded = dataset if isinstance(dataset, Dataset) else load(dataset)
    chosen = recorded.indices if episode is None else [episode] if isinstance(episode, int) else list(episode)
    maker = recorded_factory(recorded, env, wrappers, env_options=env_options, pool=pool)
    differences: dict[int, Difference] = {}
    plans = [_plan(recorded.episode(index, arrays=False)) for index in chosen]
    if not plans:
        return []

    def compare(again: Episode) -> None:
        data, _ = encode_episode(again)
        difference = first_difference(recorded.episode(again.index), decode_episode(data))
        if difference is not None:
            differences[again.index] = difference
        bar.advance()

    max_steps = recorded.manifest.arguments.max_steps
    with EpisodeBar(len(chosen), is_shown=progress) as bar, maker.open(min(sessions, len(plans))) as opened:
        runner = EpisodeRunner(opened.make, _Recorded(recorded), sessions=opened.sessions, max_steps=max_steps)
        runner.run(plans, on_episode=lambda again, details: compare(again), on_fault=lambda index, reason: bar.count_fault())
    return [differences[index] for index in sorted(differences)]


def first_difference(expected: Episode, found: Episode) -> Difference | None:
    """Return the first difference between two episodes with the same actions, or None if they are equal."""
    for number, (then, now) in enumerate(zip(expected.steps, found.steps, strict=False)):
        for name in _COMPARED_FIELDS:
            difference = _compare(getattr(then, name), getattr(now, name), name)
            if difference is not None:
                return Difference(expected.index, number, *difference)
    if len(expected.steps) != len(found.steps):
        steps = min(len(expected.steps), len(found.steps))
        return Difference(expected.index, steps, "steps", len(expected.steps) - 1, len(found.steps) - 1)
    return None


class _Recorded(Policy):
    """Policy that takes the recorded actions."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def begin(self, start: EpisodeStart) -> Actor:
        actions = iter(self._dataset.episode(start.index).actions)
        return lambda observation, info: next(actions, None)

    def describe(self) -> dict[str, Any]:
        return {"name": "recorded"}


def _plan(episode: Episode) -> EpisodePlan:
    return EpisodePlan(episode.index, episode.seed, episode.options, np.random.SeedSequence(0))


def _compare(then: Any, now: Any, where: str) -> tuple[str, Any, Any] | None:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in [*then, *(name for name in now if name not in then)]:
            inner = f"{where}.{name}"
            if name not in then or name not in now:
                return inner, then.get(name), now.get(name)
            difference = _compare(then[name], now[name], inner)
            if difference is not None:
                return difference
        return None
    if isinstance(then, np.ndarray) and isinstance(now, np.ndarray):
        is_equal = then.dtype == now.dtype and np.array_equal(then, now, equal_nan=then.dtype.kind == "f")
    else:
        # NaN counts as equal to NaN.
        is_equal = type(then) is type(now) and (then == now or then != then)
    return None if is_equal else (where, then, now)


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape} with mean {value.mean():.4g}"
    return f"{value!r:.{_SHOWN_CHARS}}"
