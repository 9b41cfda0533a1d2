"""Command line of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import Group, run_benchmarks
from coding_gym.cli.common import Provider, ProviderOption, errors_in_red

_WIDTH_WITHOUT_TERMINAL = 160

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command()
def main(
    provider: ProviderOption = Provider.AUTO,
    quick: Annotated[bool, typer.Option("--quick", help="Take a tenth of the samples.")] = False,
    only: Annotated[
        list[Group] | None,
        typer.Option(metavar="GROUP", help=f"Measure only this group; repeatable: {', '.join(Group)}."),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(metavar="PATH", dir_okay=False, writable=True, help="Also write the results to this JSON file."),
    ] = None,
) -> None:
    """Benchmark sandboxes and compare the results with their thresholds. The exit code is 1 if a group cannot be measured."""
    if json is not None and not json.parent.is_dir():
        message = f"there is no directory {json.parent}"
        raise typer.BadParameter(message)
    console = Console(highlight=False)
    if not console.is_terminal:
        # In a pipe, do not truncate names to the default width of 80 columns.
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    with errors_in_red():
        rows = run_benchmarks(console, provider=provider.value, quick=quick, only=only or (), json_path=json)
    raise typer.Exit(1 if any(row.failed for row in rows) else 0)


if __name__ == "__main__":
    app()
