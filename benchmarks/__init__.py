"""``python -m benchmarks``: benchmarks of the speed and memory consumption of sandboxes.

They print a table and never assert on durations: on a busy machine, the ratio to a baseline from the same run is more
meaningful than an absolute figure. For comparisons with other projects, see ``python -m tests.peers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.report import Row

__all__ = ["Group", "run_benchmarks"]


class Group(StrEnum):
    """Group of benchmarks that can be selected together."""

    STEP = "step"
    RESET = "reset"
    VECTOR = "vector"
    FIRST_COME = "first-come"
    DEADLINE = "deadline"
    COLD_START = "cold-start"
    MEMORY = "memory"
    OUTPUT = "output"
    INTERPRETER = "interpreter"
    PACKAGES = "packages"
    DISPLAY = "display"
    GRADING = "grading"
    COLLECT = "collect"
    BRANCHING = "branching"


def run_benchmarks(
    console: Console, *, provider: str = "auto", quick: bool = False, only: Sequence[Group] = (), json_path: Path | None = None
) -> list[Row]:
    """Run benchmarks and print a table. When interrupted, print the results so far and remove the sandboxes.

    Args:
        console: Console to print to.
        provider: ``docker``, ``local``, or ``auto``: Docker if an engine responds.
        quick: Whether to run a tenth of the repetitions.
        only: Groups to run; all if empty.
        json_path: Additional JSON file for the results.

    Returns:
        The results.

    Raises:
        ProviderError: If no sandbox is available.
    """
    # Imported lazily: the command line's help does not require them.
    from benchmarks import branching, collecting, display, grading, interpreter, latency, resources
    from benchmarks.plan import choose_provider
    from benchmarks.report import measure_and_print

    measures = {
        Group.STEP: latency.measure_step,
        Group.RESET: latency.measure_reset,
        Group.VECTOR: latency.measure_vector,
        Group.FIRST_COME: latency.measure_first_come,
        Group.DEADLINE: latency.measure_deadline,
        Group.COLD_START: resources.measure_cold_start,
        Group.MEMORY: resources.measure_memory,
        Group.OUTPUT: resources.measure_output,
        Group.INTERPRETER: interpreter.measure_interpreter,
        Group.PACKAGES: interpreter.measure_packages,
        Group.DISPLAY: display.measure_display,
        Group.GRADING: grading.measure_grading,
        Group.COLLECT: collecting.measure_collecting,
        Group.BRANCHING: branching.measure_branching,
    }
    plan = choose_provider(provider, quick=quick)
    chosen = {group.value: measures[group] for group in only or measures}
    return measure_and_print(console, chosen, plan, title="python -m benchmarks", json_path=json_path)
