"""The command ``coding-gym compat``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from coding_gym.cli.common import errors_in_red

__all__ = ["compat"]

_WIDTH_WITHOUT_TERMINAL = 160


def compat(
    results: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, readable=True, help="Results of another run of the tests.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")] = False,
) -> None:
    """List the frameworks that this package works with: versions, what to change, tests and the result of their last run.

    The exit code is 1 if a test failed in it.
    """
    from coding_gym_trainers.compat import compatibility, markdown_table

    with errors_in_red():
        rows = compatibility(results)
    if json:
        typer.echo(dumps([row.as_dict() for row in rows], indent=2))
    elif markdown:
        typer.echo(markdown_table(rows), nl=False)
    else:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table("framework", "tested", "installed", "what you change", "last run of the tests")
        for row in rows:
            framework, result = row.framework, row.result
            tested = "-" if result is None else f"{framework.library} {result.version}"
            cells = (framework.name, tested, framework.installed or "-", framework.change.replace("`", ""), str(result or "-"))
            table.add_row(*map(escape, cells))
        console = Console(highlight=False)
        # In a pipe, do not truncate to the default width of 80 columns.
        (console if console.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)).print(table)
    raise typer.Exit(int(any(row.result is not None and row.result.failed for row in rows)))
