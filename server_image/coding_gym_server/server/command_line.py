"""Command line of the server: an argument for each field of ``ServerConfig``."""

from __future__ import annotations

import argparse
import os
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from coding_gym_server.protocol import ServerConfig, unknown_rewards
from coding_gym_server.protocol.backends import UnknownBackendError, check_backend
from coding_gym_server.protocol.errors import reason_of

__all__ = ["parse_arguments"]


def parse_arguments(arguments: list[str] | None = None) -> ServerConfig:
    """Parse the command line and the environment variables of the server.

    A field is set by its argument, else by the document in ``--config``, else by its environment variable. The packages of
    ``ADDITIONAL_IMPORTS`` are added. The token is read from a file, which is removed, from stdin, or from ``CODING_GYM_TOKEN``.

    Args:
        arguments: The command line. Defaults to ``sys.argv[1:]``.
    """
    parser = argparse.ArgumentParser(prog="coding-gym-server", description="Serve sessions that run code.")
    parser.add_argument(
        "--config", metavar="JSON", type=msgspec.json.decode, default={}, help="the options as one JSON document"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="PATH", help="read the bearer token from a file and remove the file; - for stdin"
    )
    types = typing.get_type_hints(ServerConfig)
    for field in msgspec.structs.fields(ServerConfig):
        if field.name not in ("token", "image"):
            _add_argument(parser, field, types[field.name])
    options = vars(parser.parse_args(arguments))
    token = _take_token(options.pop("token_file"))
    try:
        config = ServerConfig.of({**_environment(), **options.pop("config"), **options})
        check_backend(config.default_backend)
    except (msgspec.ValidationError, UnknownBackendError, TypeError) as error:
        parser.error(reason_of(error))
    if reason := unknown_rewards(config.rewards):
        parser.error(f"argument --rewards: {reason}")
    if config.overlay is not None and config.packages:
        parser.error("argument --packages: not allowed with argument --overlay")
    additional = os.environ.pop("ADDITIONAL_IMPORTS", "")
    # With an overlay, all packages are installed already.
    packages = (*config.packages, *_split(additional)) if config.overlay is None else ()
    return msgspec.structs.replace(config, packages=packages, token=token)


def _add_argument(parser: argparse.ArgumentParser, field: msgspec.structs.FieldInfo, kind: Any) -> None:
    (kind, *_) = typing.get_args(kind) if type(None) in typing.get_args(kind) else (kind,)
    default, help_text = field.default, typing.get_args(field.type)[-1].description
    settings: dict[str, Any] = {}
    if kind is bool:
        settings["action"] = "store_true"
    elif typing.get_origin(kind) is typing.Literal:
        settings["choices"] = typing.get_args(kind)
    elif typing.get_origin(kind) is tuple:
        settings |= {"type": _split, "metavar": "NAMES"}
        default = ",".join(default)
    else:
        settings |= {"type": kind, "metavar": _METAVARS.get(kind, "TEXT")}
    if default not in (None, False, "", ()):
        help_text += f" (default: {default})"
    parser.add_argument(
        f"--{field.name.replace('_', '-')}", default=argparse.SUPPRESS, help=help_text.replace("%", "%%"), **settings
    )


_METAVARS: dict[Callable[[str], Any], str] = {int: "N", float: "SECONDS", Path: "PATH"}


def _environment() -> dict[str, Any]:
    """Return the fields that environment variables set."""
    fields: dict[str, Any] = {}
    if (rewards := os.environ.get("REWARDS")) is not None:
        fields["rewards"] = _split(rewards)
    if backend := os.environ.pop("EXECUTOR_BACKEND", None):
        fields["backend"] = backend
    if os.environ.get("CODING_GYM_OPENGL"):
        fields["opengl"] = True
    return fields


def _split(text: str) -> tuple[str, ...]:
    if not any(separator in text for separator in "<>=~![\n"):
        return tuple(filter(None, map(str.strip, text.split(","))))
    # Imported here because most servers have no packages with versions, and the import delays the start.
    from coding_gym_server.packages.requirements import split_list

    return tuple(split_list(text))


def _take_token(path: Path | None) -> str | None:
    from_environment = os.environ.pop("CODING_GYM_TOKEN", None)
    if path is None:
        return from_environment or None
    if str(path) == "-":
        return sys.stdin.readline().strip() or None
    token = path.read_text().strip()
    path.unlink()
    return token
