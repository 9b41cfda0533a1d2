"""Commands ``coding-gym collect``, ``replay`` and ``export``."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_gym import plugins
from coding_gym._named import import_named
from coding_gym.cli.common import PoolOption, errors_in_red, parse_options, parse_values

if TYPE_CHECKING:
    from coding_gym.datasets.policies.base import Policy
    from coding_gym.sandbox.pool import SandboxPool

__all__ = ["collect", "export", "replay"]

_Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="Option of the environment or its sandbox, such as screen=null; repeatable."
    ),
]
_INTERRUPTED = 128 + signal.SIGINT

_Sessions = Annotated[int, typer.Option(min=1, help="Maximum number of concurrent episodes.")]


class ExportFormat(StrEnum):
    """Export format of episodes."""

    PARQUET = "parquet"
    EPISODES = "parquet-episodes"
    CHAT = "chat"
    MINARI = "minari"


def collect(
    out: Annotated[Path, typer.Option(file_okay=False, help="Directory of the dataset; an existing dataset is continued.")],
    episodes: Annotated[int, typer.Option(min=1, help="Total number of episodes in the dataset.")],
    env: Annotated[str, typer.Option(help="Environment id.")] = "CodingEnv-v0",
    policy: Annotated[
        str,
        typer.Option(help="random, a .py or .json file (a script, or a JSON list of actions), module:function, or chat:MODEL."),
    ] = "random",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the dataset.")] = 0,
    max_steps: Annotated[int, typer.Option(min=1, help="Number of actions after which an episode is truncated.")] = 100,
    sessions: _Sessions = 16,
    sandboxes: Annotated[int | None, typer.Option(min=1, help="Number of sandboxes that the sessions share.")] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="ID", help="Task id; repeatable, for episodes in turn.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Endpoint of chat:MODEL, such as http://127.0.0.1:8000/v1.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            metavar="NAME=VALUE",
            help="Parameter of requests to chat:MODEL, such as temperature=0.7; repeatable.",
        ),
    ] = None,
    option: _Options = None,
    pool: PoolOption = None,
) -> None:
    """Run episodes of a policy and write them to a directory. After an interruption, the same command continues."""
    from coding_gym.datasets import collect as collect_episodes

    options = parse_options(option)
    with errors_in_red(), _interruptible(out), _pool(pool, options) if pool else contextlib.nullcontext() as shared:
        dataset = collect_episodes(
            env,
            _policy(policy, base_url, parse_values(parameter)),
            episodes,
            seed=seed,
            path=out,
            env_options=options,
            tasks=task or (),
            max_steps=max_steps,
            sessions=sessions,
            sandboxes=sandboxes,
            pool=shared,
        )
    typer.echo(f"{out}: {len(dataset)} episodes, SHA-256 {dataset.sha256}")


def replay(
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Directory of a dataset.")],
    episode: Annotated[list[int] | None, typer.Option("--episode", help="Replay only this episode; repeatable.")] = None,
    sessions: _Sessions = 16,
    option: _Options = None,
) -> None:
    """Replay recorded episodes and print where they differ. The exit code is 1 if any differs."""
    from coding_gym.datasets import load
    from coding_gym.datasets import replay as replay_episodes

    with errors_in_red():
        dataset = load(path)
        differences = replay_episodes(dataset, episode or None, sessions=sessions, env_options=parse_options(option))
    for difference in differences:
        typer.echo(str(difference))
    count = len(episode) if episode else len(dataset)
    typer.echo(f"{count - len(differences)} of {count} episodes were reproduced.")
    raise typer.Exit(1 if differences else 0)


def export(
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Directory of a dataset.")],
    target: Annotated[str, typer.Argument(help="Directory for Parquet, file for chat, dataset id for Minari.")],
    to: Annotated[ExportFormat, typer.Option(help="The format.")] = ExportFormat.PARQUET,
    only_solved: Annotated[bool, typer.Option("--only-solved", help="For chat: only solved episodes.")] = False,
    card: Annotated[bool, typer.Option("--card", help="For Parquet: with a card for the Hugging Face Hub.")] = False,
) -> None:
    """Export a dataset to another format."""
    from coding_gym.datasets import export_chat, export_minari, export_parquet, load

    if only_solved and to is not ExportFormat.CHAT:
        message = "--only-solved requires --to chat"
        raise typer.BadParameter(message)
    if card and to not in (ExportFormat.PARQUET, ExportFormat.EPISODES):
        message = "--card requires --to parquet or --to parquet-episodes"
        raise typer.BadParameter(message)
    with errors_in_red():
        dataset = load(path)
        match to:
            case ExportFormat.PARQUET:
                typer.echo(f"wrote {export_parquet(dataset, target, card=card)}")
            case ExportFormat.EPISODES:
                typer.echo(f"wrote {export_parquet(dataset, target, level='episode', card=card)}")
            case ExportFormat.CHAT:
                typer.echo(f"wrote {target}: {export_chat(dataset, target, only_solved=only_solved)} conversations")
            case ExportFormat.MINARI:
                typer.echo(f"wrote {export_minari(dataset, target).spec.data_path}")


def _pool(name: str, options: dict[str, Any]) -> SandboxPool:
    """Return the pool of that name, and remove the options of its sandboxes from those of the environment."""
    from coding_gym.sandbox.config import SandboxKwargs

    pool: SandboxPool = plugins.load("pools", name)(
        **{option: options.pop(option) for option in list(options) if option in SandboxKwargs.__annotations__}
    )
    return pool


def _policy(text: str, base_url: str | None, parameters: dict[str, Any]) -> Any:
    """Return the policy for the value of ``--policy``.

    Raises:
        typer.BadParameter: If the value is invalid, or ``--base-url`` or ``--parameter`` is not valid with it.
        ConfigurationError: If a policy cannot be imported.
    """
    kind, _, rest = text.partition(":")
    if kind == "chat" and rest:
        return _chat_policy(rest, base_url, parameters)
    if base_url is not None or parameters:
        message = "--base-url and --parameter require --policy chat:MODEL"
        raise typer.BadParameter(message)
    if text == "random":
        return text
    if text.endswith((".json", ".py")):
        return _script(Path(text))
    if rest:
        return import_named(text, "a policy")
    message = f"expected --policy to be random, a .py or .json file, module:function or chat:MODEL, got {text!r}"
    raise typer.BadParameter(message)


def _chat_policy(model: str, base_url: str | None, parameters: dict[str, Any]) -> Policy:
    from coding_gym.datasets import ChatPolicy

    if base_url is None:
        return ChatPolicy(model, parameters=parameters)
    return ChatPolicy(model, parameters=parameters, base_url=base_url)


def _script(path: Path) -> list[Any]:
    """Return the actions in a file; a Python program is a single action."""
    try:
        text = path.read_text(encoding="utf-8")
        actions = [text] if path.suffix == ".py" else json.loads(text)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}"
        raise typer.BadParameter(message) from None
    if not isinstance(actions, list):
        message = f"expected {path} to hold a JSON list of actions, got {type(actions).__name__}"
        raise typer.BadParameter(message)
    return actions


@contextlib.contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        message = f"Interrupted. All completed episodes are in {out}; the same command continues."
        typer.secho(message, fg="yellow", err=True)
        raise typer.Exit(_INTERRUPTED) from None
