"""What ``coding-gym grade`` does and prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Grader, Verdict, VerdictOutcome, load_suite, pass_at_k
from coding_gym.tasks.samples import read_samples, results_path, write_results

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["grade_samples", "parse_ks"]


def grade_samples(
    console: Console,
    path: Path,
    *,
    suite: str,
    ks: Sequence[int],
    output: Path | None = None,
    workers: int | None = None,
    progress: bool = True,
    **sandbox_options: Any,
) -> None:
    """Grade a file of samples, write what came of them, and print pass@k.

    Args:
        console: Where to print.
        path: The samples, see ``read_samples``.
        suite: What the tasks are of, see ``load_suite``.
        ks: For which k to print pass@k.
        output: Where the results go; beside the samples if None.
        workers: How many are graded at a time.
        progress: Whether to show a progress bar.
        sandbox_options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: There is no such suite, or lines of the file are no samples.
        ProviderError: A sandbox cannot be had.
    """
    tasks = load_suite(suite)
    samples = read_samples(path, tasks)
    output = output or results_path(path)
    with Grader(workers=workers, **sandbox_options) as grader:
        submissions = [(tasks[sample.task_id], sample.completion) for sample in samples]
        verdicts = grader.grade_many(submissions, progress=progress)
        graded = list(write_results(output, zip(samples, verdicts, strict=True)))
    _show(console, graded, ks, tasks=len(tasks))
    console.print(f"wrote {output}", soft_wrap=True)


def parse_ks(text: str) -> list[int]:
    """Return numbers such as ``1,10,100``.

    Raises:
        ConfigurationError: They are none.
    """
    try:
        ks = [int(part) for part in text.split(",")]
    except ValueError:
        ks = []
    if not ks or min(ks) < 1:
        message = f"expected --k to be numbers such as 1,10,100, got {text!r}"
        raise ConfigurationError(message)
    return ks


def _show(console: Console, verdicts: Sequence[Verdict], ks: Sequence[int], *, tasks: int) -> None:
    attempted = {verdict.task_id for verdict in verdicts}
    counted = Counter(verdict.task_id for verdict in verdicts if not verdict.is_infrastructure)
    fewest = min((counted[task] for task in attempted), default=0)
    found = pass_at_k(verdicts, ks)
    table = Table("", "", show_header=False)
    for k in ks:
        table.add_row(f"pass@{k}", f"{found[k]:.4f}" if k in found else f"a task has only {fewest} samples")
    table.add_section()
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    for outcome in VerdictOutcome:
        if outcomes[outcome]:
            note = ": not counted, for it is no fault of the samples" if outcome is VerdictOutcome.INFRASTRUCTURE else ""
            table.add_row(outcome.value, f"{outcomes[outcome]} of {len(verdicts)}{note}")
    table.add_section()
    table.add_row("tasks", f"{len(attempted)} of {tasks} attempted")
    console.print(table)
