"""Command ``coding-gym view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coding_gym.errors import CodingGymError

__all__ = ["view"]


def view(
    path: Annotated[Path, typer.Argument(help="Directory of a dataset, which may still be growing.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 for a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Show recorded episodes in the browser: lists, plots, timelines with code, output, pictures and verdicts.

    Runs until Ctrl-C. Only who has the printed address can open the page.
    """
    from coding_gym.web.serving import serve_pages
    from coding_gym.web.view.app import dataset_routes, view_app
    from coding_gym.web.view.index import EpisodeIndex

    def announce(address: str) -> None:
        typer.echo(f"Showing {path} at {address}\nCtrl-C stops it.")

    # Not errors_in_red: it imports Gymnasium, for which the page would wait.
    try:
        index = EpisodeIndex(path)
        index.start()
        serve_pages(view_app(dataset_routes(index)), host=host, port=port, on_start=announce, open_browser=browser)
    except CodingGymError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
