"""Implementation of ``coding-gym grade``."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rich.table import Table

from coding_gym import plugins
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxKwargs
from coding_gym.tasks import Grader, Verdict, VerdictOutcome, load_suite, pass_at_k
from coding_gym.tasks.samples import read_samples, results_path, write_results

if TYPE_CHECKING:
    from rich.console import Console

    from coding_gym_server.protocol.grading import GradingMode

__all__ = ["grade_samples", "parse_ks"]

_MAX_WORKERS = 256
"""Most submissions that are graded in parallel in a pool by default."""


def grade_samples(
    console: Console,
    path: Path,
    *,
    suite: str,
    grading: GradingMode | None = None,
    ks: Sequence[int],
    output: Path | None = None,
    workers: int | None = None,
    progress: bool = True,
    pool: str | None = None,
    **sandbox_options: Unpack[SandboxKwargs],
) -> None:
    """Grade a file of samples, write the results, and print pass@k.

    Args:
        console: Console to print to.
        path: File of samples, see ``read_samples``.
        suite: Task suite of the samples, see ``load_suite``.
        grading: Where the tests run; what the suite says if None.
        ks: Values of k to print pass@k for.
        output: Output file for the results; next to the samples if None.
        workers: Maximum number of samples to grade concurrently; the default of ``Grader`` if None.
        progress: Whether to show a progress bar.
        pool: Name of a pool that a plug-in adds, such as ``ray``.
        sandbox_options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If the suite does not exist, or a line of the file is not a valid sample.
        ProviderError: If no sandbox is available.
    """
    tasks = load_suite(suite, grading=grading)
    samples = read_samples(path, tasks)
    output = output or results_path(path)
    with _grader(pool, workers, sandbox_options) as grader:
        submissions = [(tasks[sample.task_id], sample.completion) for sample in samples]
        verdicts = grader.grade_many(submissions, progress=progress)
        graded = list(write_results(output, zip(samples, verdicts, strict=True)))
    _show(console, graded, ks, tasks=len(tasks))
    console.print(f"wrote {output}", soft_wrap=True, markup=False)


@contextlib.contextmanager
def _grader(pool: str | None, workers: int | None, sandbox_options: SandboxKwargs) -> Iterator[Grader]:
    if pool is None:
        with Grader(workers=workers, **sandbox_options) as grader:
            yield grader
        return
    with plugins.load("pools", pool)(**sandbox_options) as shared:
        shared.start()
        with Grader(pool=shared, workers=workers or min(shared.capacity, _MAX_WORKERS)) as grader:
            yield grader


def parse_ks(text: str) -> list[int]:
    """Parse comma-separated positive integers such as ``1,10,100``.

    Raises:
        ConfigurationError: If the text is malformed.
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
    fewest_samples = min((counted[task] for task in attempted), default=0)
    found = pass_at_k(verdicts, ks)
    table = Table("", "", show_header=False)
    for k in ks:
        table.add_row(f"pass@{k}", f"{found[k]:.4f}" if k in found else f"a task has only {fewest_samples} samples")
    table.add_section()
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    for outcome in VerdictOutcome:
        if outcomes[outcome]:
            note = ": not counted, because the sandbox failed" if outcome is VerdictOutcome.INFRASTRUCTURE else ""
            table.add_row(outcome.value, f"{outcomes[outcome]} of {len(verdicts)}{note}")
    weak = sum(verdict.is_weak for verdict in verdicts)
    if weak:
        table.add_row(
            "weak", f"{weak} of {len(verdicts)}: graded with too few questions to keep programs from guessing the answers"
        )
    table.add_section()
    table.add_row("tasks", f"{len(attempted)} of {tasks} attempted")
    console.print(table)
