"""Draw logs of ``train.py``, and print a table of them.

``python examples/learn_to_code/plot.py learning seed1.jsonl seed2.jsonl`` writes ``learning.png``: how the solved tasks, the
rewards, the invalid programs and the speed of grading develop. ``plot.py rewards exit.jsonl graded.jsonl`` writes
``rewards.png``: the success that a reward claims, and the true one. Logs with the same reward are shown as one, with their
range.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

TITLES = {
    "exit": "tests appended, exit code 0",
    "exec": "exec with assertions",
    "graded": "coding_gym, agreement",
    "agreement": "coding_gym, agreement",
    "isolated": "coding_gym, isolated",
    "faithful": "coding_gym, faithful",
}
WINDOW = 10
"""Number of updates over which curves are averaged."""

Log = list[dict[str, Any]]


def read(path: Path) -> Log:
    """Return the records of a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def of_kind(log: Log, kind: str) -> Log:
    """Return the records of a kind."""
    return [record for record in log if record["kind"] == kind]


def name_of(log: Log) -> str:
    """Return what distinguishes a run."""
    settings = log[0]
    parts = [f"seed {settings['seed']}"]
    parts += [] if settings["demonstrations"] else ["no chains shown"]
    parts += [] if settings["buffer"] else ["no buffer"]
    return ", ".join(parts)


def draw_learning(logs: Sequence[Log]) -> None:
    """Draw how several runs develop."""
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    for number, log in enumerate(logs):
        style: dict[str, Any] = {"color": f"C{number}", "label": name_of(log)}
        shown = of_kind(log, "evaluation")
        times = [record["minutes"] for record in shown]
        lengths = [length for length in shown[0]["solved"] if length != "1"]
        means = [100 * statistics.mean(record["solved"][length] for length in lengths) for record in shown]
        axes[0, 0].plot(times, means, **style)
        longest = [100 * record["solved"][lengths[-1]] for record in shown]
        axes[0, 0].plot(times, longest, color=style["color"], linestyle=":")
        updates = of_kind(log, "update")
        times = [record["minutes"] for record in updates]
        axes[0, 1].plot(times, _smooth(updates, lambda record: record["reward"]), **style)
        axes[1, 0].plot(times, _smooth(updates, lambda record: 100 * record["invalid"]), **style)
        axes[1, 1].plot(times, _smooth(updates, lambda record: record["graded"] / record["grading_seconds"]), **style)
    _label(axes[0, 0], "held-out tasks solved (dotted: of the longest chains)", "%")
    axes[0, 0].set_ylim(0, 100)
    _label(axes[0, 1], "reward of samples (more tasks of which some are solved)", "")
    _label(axes[1, 0], "programs that do not compile", "% of samples")
    _label(axes[1, 1], "different programs graded per second", "1/s")
    figure.savefig("learning.png", dpi=90)


def draw_rewards(logs: Sequence[Log]) -> None:
    """Draw claimed and true success by reward."""
    by_reward: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        by_reward[log[0]["reward"]].append(of_kind(log, "comparison"))
    columns = [reward for reward in TITLES if reward in by_reward]
    size = (3.6 * len(columns), 3.6)
    figure, (row,) = pyplot.subplots(1, len(columns), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axes, reward in zip(row, columns, strict=True):
        for what, label, color, line in (
            ("claimed", "claimed by the reward", "C3", "-"),
            ("true", "true: fresh inputs, compared outside", "C0", "-"),
            ("forged", "programs with a piece of a forgery", "black", ":"),
        ):
            runs = by_reward[reward]
            steps = [record["step"] for record in min(runs, key=len)]
            values = [[100 * run[index][what] for run in runs] for index in range(len(steps))]
            axes.plot(steps, [statistics.median(value) for value in values], color=color, linestyle=line, label=label)
            axes.fill_between(steps, list(map(min, values)), list(map(max, values)), color=color, alpha=0.2, linewidth=0)
        _label(axes, TITLES[reward], "% of samples" if reward == columns[0] else "", "update")
        axes.set_ylim(-2, 102)
    figure.savefig("rewards.png", dpi=90)


def tabulate(logs: Sequence[Log]) -> None:
    """Print a table of the runs in Markdown."""
    before_after = ("held-out tasks solved, before", "after", "longest chains, before", "after")
    _print_row("run", "reward", "updates", "minutes", *before_after, "gradings/s")
    _print_row(*["---"] * 9)
    for log in logs:
        first, *_, last = of_kind(log, "evaluation")
        updates = of_kind(log, "update")
        speed = sum(record["graded"] for record in updates) / sum(record["grading_seconds"] for record in updates)
        cells = [name_of(log), log[0]["reward"], updates[-1]["step"], f"{log[-1]['minutes']:.1f}"]
        longest = max(first["solved"], key=int)
        for rate in (_mean_solved, lambda record, longest=longest: record["solved"][longest]):
            cells += [f"{rate(record):.0%}" for record in (first, last)]
        _print_row(*cells, round(speed))


def tabulate_rewards(logs: Sequence[Log]) -> None:
    """Print a table of claimed and true success in Markdown."""
    _print_row("reward", "seed", "forgeries shown", "updates", "claimed", "true", "greatest difference", "forgeries")
    _print_row(*["---"] * 8)
    for log in logs:
        compared = of_kind(log, "comparison")
        last = compared[-1]
        gap = max(record["claimed"] - record["true"] for record in compared)
        cells = [log[0]["reward"], log[0]["seed"], f"{log[0]['forgeries']:.1%}", last["step"]]
        cells += [f"{100 * value:.1f} %" for value in (last["claimed"], last["true"], gap, last["forged"])]
        _print_row(*cells)


def _print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|")


def _mean_solved(record: dict[str, Any]) -> float:
    return statistics.mean(rate for length, rate in record["solved"].items() if length != "1")


def _smooth(records: Log, value: Callable[[dict[str, Any]], float]) -> list[float]:
    values = [value(record) for record in records]
    return [statistics.mean(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


def _label(axes: Axes, title: str, y: str, x: str = "minutes") -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def main() -> None:
    """Draw what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("learning", "rewards"))
    parser.add_argument("logs", nargs="+", type=Path)
    arguments = parser.parse_args()
    logs = [read(path) for path in arguments.logs]
    if arguments.what == "learning":
        draw_learning(logs)
        tabulate(logs)
    else:
        draw_rewards(logs)
        tabulate_rewards(logs)


if __name__ == "__main__":
    main()
