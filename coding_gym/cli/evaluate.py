"""Implementation of ``coding-gym evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import errors_in_red, parse_options, parse_values

if TYPE_CHECKING:
    from coding_gym.evaluation import Evaluation

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[str, typer.Option(metavar="NAME", help="Name of the model.")],
    suite: Annotated[str, typer.Option(metavar="SUITES", help="What load_suite accepts, separated by commas.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Directory of the episodes and the results; an evaluation in it is continued.")
    ],
    base_url: Annotated[
        str | None, typer.Option(help="Endpoint that is compatible with OpenAI's, such as http://127.0.0.1:8000/v1.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of samples of each task.")] = 1,
    k: Annotated[str, typer.Option("--k", help="Values of k for pass@k, separated by commas.")] = "1,10,100",
    turns: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of answers per sample; 1, or 30 in repositories, by default.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="Parameter of requests, such as temperature=0.8; repeatable."),
    ] = None,
    prompt_price: Annotated[float, typer.Option(min=0, help="Price of a million tokens of prompts.")] = 0.0,
    completion_price: Annotated[float, typer.Option(min=0, help="Price of a million tokens that the model writes.")] = 0.0,
    sessions: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent samples.")] = 16,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the environment or its sandbox; repeatable."),
    ] = None,
) -> None:
    """Score a model on suites: pass@k with intervals, tokens, cost and time. After an interruption, the same command continues.

    The episodes of each suite are a dataset in a directory of its own, which view and export read. The scores are also written
    to evaluation.json and evaluation.html.
    """
    from coding_gym.cli.grade import parse_ks
    from coding_gym.datasets.policies.chat import HOSTED_URL
    from coding_gym.evaluation import Prices
    from coding_gym.evaluation import evaluate as run

    with errors_in_red():
        evaluation = run(
            model,
            [name for name in map(str.strip, suite.split(",")) if name],
            out,
            base_url=base_url or HOSTED_URL,
            samples=samples,
            ks=parse_ks(k),
            turns=turns,
            parameters=parse_values(parameter),
            env_options=parse_options(option),
            prices=Prices(prompt=prompt_price, completion=completion_price),
            sessions=sessions,
        )
    (out / "evaluation.json").write_text(json.dumps(evaluation.to_dict(), indent=1) + "\n", encoding="utf-8")
    (out / "evaluation.html").write_text(evaluation.to_page(), encoding="utf-8")
    _show(evaluation)
    typer.echo(f"wrote {out / 'evaluation.json'} and {out / 'evaluation.html'}")


def _show(evaluation: Evaluation) -> None:
    for score in evaluation.scores:
        typer.echo(f"{score.suite}: {score.tasks} tasks, {score.samples} samples, {score.solved} solved, {score.seconds:.0f} s")
        for k, (rate, low, high) in score.pass_at.items():
            typer.echo(f"  pass@{k}: {rate:.1%} ({low:.1%} to {high:.1%})")
        if score.unanswered:
            typer.echo(f"  without a submission: {score.unanswered}")
        if score.prompt_tokens or score.completion_tokens:
            cost = f", cost {score.cost:.4g}" if score.cost else ""
            typer.echo(f"  tokens: {score.prompt_tokens:,} of prompts, {score.completion_tokens:,} written{cost}")
