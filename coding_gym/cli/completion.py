"""Command ``coding-gym completion``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["completion"]

_PROGRAM = "coding-gym"


class Shell(StrEnum):
    """Shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script with which a shell completes commands and options.

    For bash, put eval "$(coding-gym completion bash)" into ~/.bashrc; for zsh, put eval "$(coding-gym completion zsh)" into
    ~/.zshrc after compinit; for fish, put "coding-gym completion fish | source" into ~/.config/fish/config.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name=_PROGRAM, complete_var="_CODING_GYM_COMPLETE", shell=shell.value))
