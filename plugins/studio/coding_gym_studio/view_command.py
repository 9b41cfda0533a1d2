"""Command ``coding-gym view``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.errors import CodingGymError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["view"]


def view(
    path: Annotated[
        Path, typer.Argument(help="Directory of a dataset, which may still be growing, or file of a saved search tree.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 for a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Show recorded episodes, or a saved search tree, in the browser.

    Episodes have lists, plots, and timelines with code, output, pictures and verdicts; a tree of `BranchTree.save` has a
    drawing, an outline, and the episode up to each node.

    Runs until Ctrl-C. Only who has the printed address can open the page.
    """
    from coding_gym_studio.serving import serve_pages

    def announce(address: str) -> None:
        typer.echo(f"Showing {path} at {address}\nCtrl-C stops it.")

    # Not errors_in_red: it imports the client of the engine, for which the page would wait.
    try:
        serve_pages(_app(path), host=host, port=port, on_start=announce, open_browser=browser)
    except CodingGymError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        expected = "expected a directory that collect() has written, or a file of a saved tree, that this user may read"
        typer.secho(f"Cannot open {path}: {error.strerror or error}; {expected}", fg="red", err=True)
        raise typer.Exit(1) from None


def _app(path: Path) -> ASGIApp:
    """Return the application that shows a path."""
    if path.is_file():
        from coding_gym_studio.viewer.trees import tree_app

        return tree_app(path)
    from coding_gym_studio.viewer.app import dataset_routes, view_app
    from coding_gym_studio.viewer.index import EpisodeIndex

    index = EpisodeIndex(path)
    index.start()
    return view_app(dataset_routes(index))
