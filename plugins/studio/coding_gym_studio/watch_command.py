"""Command ``coding-gym watch``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import errors_in_red
from coding_gym.plugins import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from coding_gym_studio.watching.messages import Hello

__all__ = ["watch"]

_HOW_TO_START = "Run one with CODING_GYM_WATCH=1, or call coding_gym_studio.watch() in it."


def watch(
    trainer: Annotated[
        str | None, typer.Argument(metavar="[NAME|PID]", help="Name or process id of the trainer; the only one by default.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all trainers of this user together.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 for a free one.")] = 0,
    list_: Annotated[bool, typer.Option("--list", help="List the trainers and exit.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Watch the sessions of a running trainer in the browser, live.

    The trainer must have been started with CODING_GYM_WATCH=1, or have called coding_gym_studio.watch().
    """
    from coding_gym_studio.serving import serve_pages
    from coding_gym_studio.watcher.app import create_app
    from coding_gym_studio.watching.client import find_trainers
    from coding_gym_studio.watching.follower import Follower

    with errors_in_red():
        found = find_trainers()
        if list_:
            typer.echo(_listing(found) if found else f"There is no trainer. {_HOW_TO_START}")
            return
        is_wanted = _selection(found, trainer, everything=everything)
        with Follower(is_wanted) as follower:

            def show(address: str) -> None:
                shown = ", ".join(dict.fromkeys(_title(process.hello) for process in follower.processes))
                state = f"Watching {shown}" if shown else f"Waiting for a trainer. {_HOW_TO_START}"
                typer.echo(f"{state}\nOpen {address}\nCtrl-C stops watching; the trainer continues.")

            serve_pages(create_app(follower), host=host, port=port, on_start=show, open_browser=open_)


def _selection(found: list[Hello], trainer: str | None, *, everything: bool) -> Callable[[Hello], bool]:
    """Return what to follow.

    Raises:
        typer.BadParameter: If there is no such trainer, or there are several.
    """
    if everything:
        if trainer is not None:
            message = "--all shows all trainers: leave the name out"
            raise typer.BadParameter(message)
        return lambda hello: True
    if trainer is not None:
        if not any(_is_called(hello, trainer) for hello in found):
            known = f"the trainers are:\n{_listing(found)}" if found else f"there is none. {_HOW_TO_START}"
            message = f"there is no trainer {trainer!r}; {known}"
            raise typer.BadParameter(message)
        return lambda hello: _is_called(hello, trainer)
    roots = {hello.root for hello in found}
    if len(roots) > 1:
        message = f"there are several trainers: name one, or pass --all\n{_listing(found)}"
        raise typer.BadParameter(message)
    if not roots:
        return lambda hello: True
    only = found[0]
    # Also after a restart, with another process id.
    return lambda hello: hello.root == only.root or hello.name == only.name


def _is_called(hello: Hello, trainer: str) -> bool:
    return trainer in (hello.name, str(hello.pid), str(hello.root))


def _title(hello: Hello) -> str:
    return f"{printable(hello.name)} (process {hello.root})"


def _listing(found: list[Hello]) -> str:
    lines = []
    for root in dict.fromkeys(hello.root for hello in found):
        processes = [hello for hello in found if hello.root == root]
        first = processes[0]
        count = f", {len(processes)} processes" if len(processes) > 1 else ""
        lines.append(f"  {printable(first.name)}  process {root}{count}  {printable(first.command)}")
    return os.linesep.join(lines)
