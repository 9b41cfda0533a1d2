"""Command ``coding-gym run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import (
    PackagesOption,
    Provider,
    ProviderOption,
    SandboxOptions,
    TokenOption,
    UrlOption,
    check_picture_path,
    errors_in_red,
    parse_size_option,
    parse_variables,
    sandbox_config_of,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["ARGUMENTS_AFTER_FILE", "run"]

_STDIN = "-"
ARGUMENTS_AFTER_FILE = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Python program, shell script (.sh), or - for a program on standard input.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the program.")] = None,
    screenshot: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write the screen at the end of the program to this file, .png for example."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.01, help="Kill the program after this time: exit code 124.")
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", exists=True, help="File or directory to copy into its working directory; repeatable."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable; repeatable.")
    ] = None,
    screen: Annotated[str | None, typer.Option(metavar="WxH", help="Width and height of the screen in pixels.")] = None,
    window_manager: Annotated[bool, typer.Option("--window-manager", help="Run a window manager on the screen.")] = False,
    provider: ProviderOption = Provider.AUTO,
    packages: PackagesOption = None,
    option: SandboxOptions = None,
    url: UrlOption = None,
    token: TokenOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the program's output.")] = False,
) -> None:
    """Run a program in a sandbox, with its output, its standard input and its exit code.

    Options go before FILE, arguments of the program after it. A program that waits for events on its windows has them closed.
    The exit code is 124 after a timeout, 128 + n after signal n, and 1 if there is nothing to write to --screenshot.
    """
    from coding_gym.cli.program import run_program

    source, name = _source(file)
    with errors_in_red():
        if screenshot is not None:
            check_picture_path(screenshot)
        completed = run_program(
            source,
            name=name,
            arguments=arguments or (),
            config=sandbox_config_of(
                provider=provider,
                backend=None,
                packages=packages,
                options=option,
                url=url,
                token=token,
                # A single program does not benefit from preloaded modules and spare workers.
                preload=(),
                spare_workers=0,
            ),
            files=files or (),
            environment=parse_variables(env),
            stdin=None if file == _STDIN or sys.stdin is None else sys.stdin.buffer,
            timeout=timeout,
            screen="auto" if screen is None else parse_size_option(screen),
            window_manager=window_manager,
        )
    if completed.note and not quiet:
        typer.echo(completed.note, err=True)
    if screenshot is not None:
        _write_screenshot(screenshot, completed.screenshot, exit_code=completed.exit_code)
    raise typer.Exit(completed.exit_code)


def _source(file: str) -> tuple[bytes, str]:
    """Return the source of the program, and the name of its file in the sandbox.

    Raises:
        typer.BadParameter: If it cannot be read.
    """
    if file == _STDIN:
        return sys.stdin.buffer.read(), "stdin.py"
    try:
        return Path(file).read_bytes(), Path(file).name
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise typer.BadParameter(message, param_hint="FILE") from None


def _write_screenshot(path: Path, picture: npt.NDArray[np.uint8] | None, *, exit_code: int) -> None:
    from PIL import Image

    if picture is None:
        typer.secho(f"{path} was not written: nothing was on the screen", fg="red", err=True)
        raise typer.Exit(exit_code or 1)
    Image.fromarray(picture).save(path)
