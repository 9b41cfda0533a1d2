"""The commands ``coding-gym collect``, ``export`` and ``replay``."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_gym.errors import CodingGymError

if TYPE_CHECKING:
    from coding_gym.datasets.policies import Policy

__all__ = ["collect", "export", "replay"]

_Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Of the environment or its sandbox, such as screen=null; repeatable."),
]
_Sessions = Annotated[int, typer.Option(min=1, help="How many episodes to run at a time.")]


class Format(StrEnum):
    """What episodes are exported to."""

    PARQUET = "parquet"
    EPISODES = "parquet-episodes"
    CHAT = "chat"
    MINARI = "minari"


def collect(
    out: Annotated[Path, typer.Option(file_okay=False, help="The directory; a dataset that is there is gone on with.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many there are to be.")],
    env: Annotated[str, typer.Option(help="The environment's id.")] = "CodingEnv-v0",
    policy: Annotated[
        str,
        typer.Option(help="random, a .py or .json file (a script, or a JSON list of actions), module:function, or chat:MODEL."),
    ] = "random",
    seed: Annotated[int, typer.Option(min=0, help="Of the dataset.")] = 0,
    max_steps: Annotated[int, typer.Option(min=1, help="Actions after which an episode is truncated.")] = 100,
    sessions: _Sessions = 16,
    sandboxes: Annotated[int | None, typer.Option(min=1, help="How many sandboxes to run them in.")] = None,
    task: Annotated[list[str] | None, typer.Option("--task", metavar="ID", help="The task to set; several take turns.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The endpoint of chat:MODEL, such as http://127.0.0.1:8000/v1.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", metavar="NAME=VALUE", help="Of requests to chat:MODEL, such as temperature=0.7; repeatable."
        ),
    ] = None,
    option: _Options = None,
) -> None:
    """Run episodes of a policy, and write them to a directory. After an interruption, the same command goes on."""
    from coding_gym.datasets import collect as collect_episodes

    with _errors_in_red():
        dataset = collect_episodes(
            env,
            _policy(policy, base_url, _values(parameter)),
            episodes,
            seed=seed,
            path=out,
            env_options=_values(option),
            tasks=task or (),
            max_steps=max_steps,
            sessions=sessions,
            sandboxes=sandboxes,
        )
    typer.echo(f"{out}: {len(dataset)} episodes, SHA-256 {dataset.sha256}")


def replay(
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The directory of a dataset.")],
    episode: Annotated[list[int] | None, typer.Option("--episode", help="Only this one; repeatable.")] = None,
    sessions: _Sessions = 16,
    option: _Options = None,
) -> None:
    """Run recorded episodes again, and print where they went another way. The exit code is 1 if one did."""
    from coding_gym.datasets import load
    from coding_gym.datasets import replay as replay_episodes

    with _errors_in_red():
        dataset = load(path)
        differences = replay_episodes(dataset, episode or None, sessions=sessions, env_options=_values(option))
    for difference in differences:
        typer.echo(str(difference))
    count = len(episode) if episode else len(dataset)
    typer.echo(f"{count - len(differences)} of {count} episodes are as they were.")
    raise typer.Exit(1 if differences else 0)


def export(
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The directory of a dataset.")],
    target: Annotated[str, typer.Argument(help="A directory for Parquet, a file for chat, an id for Minari.")],
    to: Annotated[Format, typer.Option(help="The format.")] = Format.PARQUET,
    only_solved: Annotated[bool, typer.Option("--only-solved", help="Of chat: leave out what was not solved.")] = False,
) -> None:
    """Write a dataset in another format."""
    from coding_gym.datasets import export_chat, export_minari, export_parquet, load

    with _errors_in_red():
        dataset = load(path)
        match to:
            case Format.PARQUET:
                typer.echo(f"wrote {export_parquet(dataset, target)}")
            case Format.EPISODES:
                typer.echo(f"wrote {export_parquet(dataset, target, level='episode')}")
            case Format.CHAT:
                typer.echo(f"wrote {target}: {export_chat(dataset, target, only_solved=only_solved)} conversations")
            case Format.MINARI:
                typer.echo(f"wrote {export_minari(dataset, target).spec.data_path}")


def _policy(text: str, base_url: str | None, parameters: dict[str, Any]) -> Any:
    """Return the policy that an option means.

    Raises:
        typer.BadParameter: None.
    """
    kind, _, rest = text.partition(":")
    if kind == "chat" and rest:
        return _chat_policy(rest, base_url, parameters)
    if base_url is not None or parameters:
        message = "--base-url and --parameter go with --policy chat:MODEL"
        raise typer.BadParameter(message)
    if text == "random":
        return text
    if text.endswith((".json", ".py")):
        return _script(Path(text))
    if rest:
        return _function(kind, rest)
    message = f"expected --policy to be random, a .py or .json file, module:function or chat:MODEL, got {text!r}"
    raise typer.BadParameter(message)


def _chat_policy(model: str, base_url: str | None, parameters: dict[str, Any]) -> Policy:
    from coding_gym.datasets import ChatPolicy

    if base_url is None:
        return ChatPolicy(model, parameters=parameters)
    return ChatPolicy(model, parameters=parameters, base_url=base_url)


def _script(path: Path) -> list[Any]:
    """Return the actions of a file: a program is one."""
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


def _function(module: str, name: str) -> Any:
    # As ``python -m`` does: what is in the current directory can be named.
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        message = f"there is no policy {module}:{name}: {error}"
        raise typer.BadParameter(message) from None


def _values(texts: list[str] | None) -> dict[str, Any]:
    """Return ``NAME=VALUE`` options: values are JSON where they can be, else text."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            message = f"expected NAME=VALUE, got {text!r}"
            raise typer.BadParameter(message)
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


@contextlib.contextmanager
def _errors_in_red() -> Iterator[None]:
    import gymnasium as gym

    try:
        yield
    except (CodingGymError, gym.error.Error) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
