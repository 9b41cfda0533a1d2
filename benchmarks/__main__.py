"""Command line of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import Group, run_benchmarks
from coding_gym.cli.common import Provider, ProviderOption, errors_in_red

_WIDTH_WITHOUT_TERMINAL = 160
_PATIENCE_SECONDS = 600.0

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command()
def main(
    provider: ProviderOption = Provider.AUTO,
    quick: Annotated[bool, typer.Option("--quick", help="Take a tenth of the samples.")] = False,
    only: Annotated[
        list[Group] | None,
        typer.Option(metavar="GROUP", help=f"Measure only this group; repeatable: {', '.join(Group)}."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds, each of which measures every group once.")] = 1,
    json: Annotated[
        Path | None,
        typer.Option(metavar="PATH", dir_okay=False, writable=True, help="Also write the results to this JSON file."),
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write the figures of README and documentation, on a machine that does nothing else."),
    ] = False,
) -> None:
    """Benchmark sandboxes and compare the results with their thresholds. The exit code is 1 if a group cannot be measured."""
    if json is not None and not json.parent.is_dir():
        message = f"there is no directory {json.parent}"
        raise typer.BadParameter(message)
    from benchmarks import figures
    from benchmarks.plan import choose_provider
    from benchmarks.quiet import BusyError, wait_for_quiet

    console = Console(highlight=False)
    if not console.is_terminal:
        # In a pipe, do not truncate names to the default width of 80 columns.
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    with errors_in_red():
        plan = choose_provider(provider.value, quick=quick)
        try:
            results = run_benchmarks(
                console,
                plan,
                only=only or (),
                rounds=rounds,
                before_each=(lambda: wait_for_quiet(_PATIENCE_SECONDS)) if write else lambda: None,
            )
        except BusyError as error:
            raise typer.BadParameter(str(error), param_hint="--write") from None
        report = figures.record(results, plan)
        if json is not None:
            json.write_text(figures.as_json(report), encoding="utf-8")
        if write:
            for page in figures.write(report):
                typer.echo(f"wrote {page}")
    raise typer.Exit(1 if any(row.failed for rows in results.values() for row in rows) else 0)


if __name__ == "__main__":
    app()
