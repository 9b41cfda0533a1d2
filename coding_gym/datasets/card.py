"""Dataset card, a ``README.md`` in the format of the Hugging Face Hub, and summary statistics."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.episode import Episode

__all__ = ["Summary", "render_card", "summarize", "write_card"]

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_LARGEST_CATEGORY = "n>1M"


@dataclasses.dataclass(frozen=True)
class Summary:
    """Summary statistics of a dataset.

    Attributes:
        episodes: Number of episodes.
        steps: Number of actions.
        endings: Number of episodes by ending: ``terminated``, ``truncated``, or ``empty`` for those without actions.
        outcomes: Number of steps by ``info["outcome"]``.
        solved: Number of solved episodes; None if no episode records whether it was solved.
        mean_reward: Mean total reward of an episode.
        tasks: Number of distinct tasks.
    """

    episodes: int
    steps: int
    endings: Mapping[str, int]
    outcomes: Mapping[str, int]
    solved: int | None
    mean_reward: float
    tasks: int


def summarize(episodes: Iterable[Episode]) -> Summary:
    """Compute summary statistics of episodes."""
    endings, outcomes, tasks = Counter[str](), Counter[str](), set()
    count = steps = 0
    reward = 0.0
    solved: list[bool] = []
    for episode in episodes:
        count += 1
        steps += len(episode.steps) - 1
        reward += episode.total_reward
        tasks.add(episode.task_id)
        outcomes.update(str(step.info["outcome"]) for step in episode.steps[1:] if "outcome" in step.info)
        endings["empty" if len(episode.steps) == 1 else "terminated" if episode.steps[-1].terminated else "truncated"] += 1
        if episode.solved is not None:
            solved.append(episode.solved)
    return Summary(
        episodes=count,
        steps=steps,
        endings=dict(sorted(endings.items())),
        outcomes=dict(sorted(outcomes.items())),
        solved=sum(solved) if solved else None,
        mean_reward=reward / count if count else 0.0,
        tasks=len(tasks - {None}),
    )


def write_card(dataset: Dataset, directory: Path, *, data_files: str | None = None) -> None:
    """Write the card of a dataset.

    Args:
        dataset: The dataset.
        directory: Directory to write ``README.md`` to.
        data_files: Glob pattern of the Parquet files, for the configuration in the card; None if there are none.
    """
    (directory / "README.md").write_text(render_card(dataset, data_files=data_files), encoding="utf-8")


def render_card(dataset: Dataset, *, data_files: str | None = None) -> str:
    """Return the text of the card; see ``write_card`` for the arguments."""
    summary = summarize(dataset.without_arrays())
    arguments = dataset.manifest.arguments
    rows = {
        "environment": f"`{arguments.env}`",
        "options": _code(arguments.env_options),
        "wrappers": ", ".join(f"`{name}`" for name in arguments.wrappers) or "none",
        "policy": _code(arguments.policy),
        "seed": str(arguments.seed),
        "episodes": f"{summary.episodes} of {dataset.manifest.episodes}",
        "steps": str(summary.steps),
        "tasks": str(summary.tasks or "none"),
        "solved": "not known" if summary.solved is None else f"{summary.solved} ({summary.solved / summary.episodes:.1%})",
        "mean reward of an episode": f"{summary.mean_reward:.4g}",
        "sandbox failures, retried and not recorded": str(dataset.faults),
        "SHA-256 of the episodes": f"`{dataset.sha256}`",
    }
    sections = [
        _header(summary, data_files),
        f"# Episodes of {arguments.env}",
        f"Collected with [coding-gym](https://pypi.org/project/coding-gym/). {_INTRODUCTION[data_files is not None]}",
        _table(("", ""), rows.items()),
        "## How steps ended",
        _table(("outcome", "steps"), summary.outcomes.items()),
        "## How episodes ended",
        _table(("ending", "episodes"), summary.endings.items()),
        "## Collection runs",
        _table(
            ("started", "found", "sessions", "coding-gym", "Python", "libraries", "sandbox"),
            (
                (
                    run.started,
                    run.had,
                    run.sessions,
                    run.versions.coding_gym,
                    run.versions.python,
                    ", ".join(f"{name} {version}" for name, version in run.versions.libraries.items()),
                    run.versions.sandbox or "managed by the environment",
                )
                for run in dataset.manifest.runs
            ),
        ),
    ]
    return "\n\n".join(sections) + "\n"


_INTRODUCTION = {
    False: "Read it with `coding_gym.datasets.load`, export it with `coding-gym export`, repeat it with `coding-gym replay`.",
    True: "Read this directory with `datasets.load_dataset`, and its directory `data` with `pandas.read_parquet`. "
    "Text is UTF-8, screenshots are PNG, exactly as they were; `info` and `decision` are JSON.",
}


def _header(summary: Summary, data_files: str | None) -> str:
    size = next((name for limit, name in _SIZES if summary.episodes < limit), _LARGEST_CATEGORY)
    lines = [
        "---",
        "pretty_name: Episodes of an agent that writes code",
        "tags:",
        "- reinforcement-learning",
        "- code",
        "- coding-gym",
        "size_categories:",
        f"- {size}",
    ]
    if data_files is not None:
        lines += ["configs:", "- config_name: default", "  data_files:", "  - split: train", f"    path: {data_files}"]
    return "\n".join([*lines, "---"])


def _table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    cells = [list(map(str, head))]
    cells += [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def _code(data: Any) -> str:
    return f"`{json.dumps(data, ensure_ascii=False, default=str)}`" if data else "none"
