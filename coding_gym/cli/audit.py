"""Implementation of ``coding-gym audit``."""

from __future__ import annotations

import contextlib
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import Provider, errors_in_red

if TYPE_CHECKING:
    from coding_gym.audit import AuditReport, Check, Verifier

__all__ = ["audit"]

_SHOWN = 5
"""Number of findings of a check whose code is printed."""
_SHOWN_CHARS = 200
_SHOWN_CODE_LINES = 12
_SHOWN_NOTES = 10
"""Number of findings that are no failures that are printed."""


def audit(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="What load_suite accepts: humaneval, a .jsonl file ...")],
    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="FORM:NAME", help="python:MODULE:NAME, trl:MODULE:NAME or verifiers:TASKSET; the grader if left out."
        ),
    ] = None,
    solved_from: Annotated[float, typer.Option(help="Reward of a solution, of a verifier that is a function.")] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds after which a call of such a function is ended.")] = 10.0,
    hacks: Annotated[list[Path] | None, typer.Option(help="TOML file of further hacks; repeatable.")] = None,
    mutants: Annotated[int, typer.Option(min=0, help="Maximum number of mutants of a reference.")] = 5,
    tasks: Annotated[int | None, typer.Option(min=1, help="Audit a random sample of the tasks.")] = None,
    grading: Annotated[str | None, typer.Option(help="Where the tests run; what the tasks say if left out.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a .json or .html file.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of concurrent gradings; two per core by default.")] = None,
    provider: Annotated[Provider, typer.Option(help="Sandbox provider.")] = Provider.AUTO,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Audit a suite and what judges its submissions: programs that must fail and must pass, repeated, and under load.

    A verifier that is a function runs the hacks in processes of this machine, without a sandbox, unless it has one of its own.

    The exit code is 1 if a requirement is not met.
    """
    from coding_gym.audit import GraderVerifier, load_hacks, load_verifier, own_hacks
    from coding_gym.audit import audit as run
    from coding_gym.tasks import Grader, load_suite

    with errors_in_red(), contextlib.ExitStack() as stack:
        if output is not None and output.suffix not in (".json", ".html"):
            message = f"expected a path that ends with .json or .html, got {output}"
            raise typer.BadParameter(message, param_hint="--output")
        loaded = load_suite(suite, grading=grading)
        if tasks is not None and tasks < len(loaded):
            loaded = loaded.sample(tasks, seed=1)
        collected = [hack for path in hacks or () for hack in load_hacks(path)]
        judge: Verifier
        if verifier is None:
            judge = GraderVerifier(stack.enter_context(Grader(provider=provider.value, workers=workers)))
        else:
            judge = stack.enter_context(load_verifier(verifier, solved_from=solved_from, timeout=timeout))
        report = run(
            loaded,
            judge,
            hacks=[*own_hacks(), *collected],
            most_mutants=mutants,
            report=lambda _: None if quiet else typer.echo(_, err=True),
        )
    _show(report)
    if output is not None:
        output.write_text(json.dumps(report.to_dict(), indent=1) if output.suffix == ".json" else report.to_page(), "utf-8")
        typer.echo(f"wrote {output}")
    raise typer.Exit(0 if report.passed else 1)


def _show(report: AuditReport) -> None:
    width = max(len(check.title) for check in report.checks)
    for check in report.checks:
        sign = "ok" if not check.findings else "FAILED" if check.is_failure else "note"
        low, high = check.interval
        bounds = f"{low:.2%} to {high:.2%}" if check.total else "nothing to check"
        typer.echo(f"{sign:6} {check.title:{width}}  {len(check.findings)} of {check.total} do not ({bounds})")
        if check.is_failure:
            _show_findings(check)
        else:
            for finding in check.findings[:_SHOWN_NOTES]:
                typer.echo(f"         {finding.task_id}, {finding.name}")
    verdict = "passed" if report.passed else "failed"
    typer.echo(f"{report.suite} judged by {report.verifier}: {report.tasks} tasks, {verdict}")


def _show_findings(check: Check) -> None:
    """Print each kind of finding, and the smallest code of some."""
    examples = {
        name: min((finding for finding in check.findings if finding.name == name), key=lambda finding: len(finding.code))
        for name in check.holes
    }
    for name, count in check.holes.items():
        why = " ".join(examples[name].why.split())[:_SHOWN_CHARS]
        typer.echo(f"         {name}: {count}, such as {examples[name].task_id}{f': {why}' if why else ''}")
    for finding in sorted(examples.values(), key=lambda finding: len(finding.code))[:_SHOWN]:
        lines = finding.code.strip().splitlines()
        more = [f"... and {len(lines) - _SHOWN_CODE_LINES} more lines"] if len(lines) > _SHOWN_CODE_LINES else []
        typer.echo(f"         {finding.task_id}, {finding.name}:")
        typer.echo(textwrap.indent("\n".join([*lines[:_SHOWN_CODE_LINES], *more]), " " * 13))
