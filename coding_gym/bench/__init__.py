"""``coding-gym bench``: how fast sandboxes are, and what they take.

A program that prints a table, never a timed assertion: the machine may be busy, so peers are measured in the same run, and the
ratios to them say more than the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from coding_gym.bench.report import Row

__all__ = ["Group", "run_benchmarks"]


class Group(StrEnum):
    """What is measured together."""

    STEP = "step"
    RESET = "reset"
    VECTOR = "vector"
    DEADLINE = "deadline"
    COLD_START = "cold-start"
    MEMORY = "memory"
    OUTPUT = "output"
    OPENENV = "openenv"
    INTERPRETER = "interpreter"
    PACKAGES = "packages"
    DISPLAY = "display"
    GRADING = "grading"
    COLLECT = "collect"


def run_benchmarks(
    console: Console, *, provider: str = "auto", quick: bool = False, only: Sequence[Group] = (), json_path: Path | None = None
) -> list[Row]:
    """Measure, and print a table. When interrupted, it shows what was measured until then, and leaves nothing behind.

    Args:
        console: Where to print.
        provider: ``docker``, ``local``, or ``auto``: Docker if an engine answers.
        quick: Measure a tenth as often.
        only: The groups to measure; all if empty.
        json_path: A file that the figures are written to, too.

    Raises:
        ProviderError: A sandbox cannot be had.
    """
    # Imported late: the command line shows its help without them.
    from coding_gym.bench import collecting, display, grading, interpreter, latency, openenv, resources
    from coding_gym.bench.plan import choose_provider
    from coding_gym.bench.report import build_table, write_json

    measure = {
        Group.STEP: latency.measure_step,
        Group.RESET: latency.measure_reset,
        Group.VECTOR: latency.measure_vector,
        Group.DEADLINE: latency.measure_deadline,
        Group.COLD_START: resources.measure_cold_start,
        Group.MEMORY: resources.measure_memory,
        Group.OUTPUT: resources.measure_output,
        Group.OPENENV: openenv.measure_openenv,
        Group.INTERPRETER: interpreter.measure_interpreter,
        Group.PACKAGES: interpreter.measure_packages,
        Group.DISPLAY: display.measure_display,
        Group.GRADING: grading.measure_grading,
        Group.COLLECT: collecting.measure_collecting,
    }
    plan = choose_provider(provider, quick=quick)
    rows: list[Row] = []
    try:
        for group in only or list(Group):
            with console.status(f"Measuring {group} ..."):
                rows += measure[group](plan)
    finally:
        if rows:
            console.print(build_table(rows, plan))
            if json_path is not None:
                write_json(rows, plan, json_path)
    return rows
