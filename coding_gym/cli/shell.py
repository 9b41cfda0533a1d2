"""Command ``coding-gym shell``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import (
    BackendOption,
    PackagesOption,
    Provider,
    ProviderOption,
    SandboxOptions,
    TokenOption,
    UrlOption,
    errors_in_red,
    sandbox_config_of,
)
from coding_gym.cli.shell_input import ScriptReader, TerminalReader, is_complete_of

if TYPE_CHECKING:
    from coding_gym.code_interpreter import CodeInterpreter, Execution, ExecutionError
    from coding_gym.media.results import Result

__all__ = ["shell"]

_TIMEOUT = 7 * 86_400.0
_LEAVE = frozenset({"exit", "exit()", "quit", "quit()"})
_PICTURE_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "image/gif": ".gif"}
_HISTORY_LINES = 10_000


def shell(
    provider: ProviderOption = Provider.AUTO,
    backend: BackendOption = None,
    packages: PackagesOption = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.01, help="Time limit of each input; a week by default.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Directory to write figures and screenshots to.")
    ] = None,
    option: SandboxOptions = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Open a prompt into a sandbox, whose interpreter keeps its variables. Also reads code from a pipe.

    Ctrl-C interrupts what runs, Ctrl-D leaves. The exit code is 1 if the last input of a pipe failed.
    """
    from coding_gym.code_interpreter import CodeInterpreter

    with errors_in_red():
        config = sandbox_config_of(
            provider=provider, backend=backend, packages=packages, options=option, url=url, token=token, sessions=2
        )
        interpreter = CodeInterpreter(url, token=token) if url else CodeInterpreter(config=config)
        with interpreter:
            prompt = _Prompt(interpreter, language=backend if url else None, timeout=timeout or _TIMEOUT, pictures=pictures)
            if sys.stdin.isatty():
                where = interpreter.sandbox.description if interpreter.sandbox is not None else f"the server at {url}"
                typer.echo(f"{backend or 'Python'} in {where}. Ctrl-C interrupts, Ctrl-D leaves.")
                with _history():
                    prompt.run_terminal(is_complete_of(backend))
            elif not prompt.run_script(is_complete_of(backend)):
                raise typer.Exit(1)


class _Prompt:
    """Executes inputs, and prints what they print and return.

    Args:
        interpreter: The interpreter.
        language: Language of the context; the sandbox's Python, or what its backend executes, if None.
        timeout: Time limit of each input in seconds.
        pictures: Directory for pictures, None to only mention them.
    """

    def __init__(self, interpreter: CodeInterpreter, *, language: str | None, timeout: float, pictures: Path | None) -> None:
        self._interpreter = interpreter
        self._language = language
        self._timeout = timeout
        self._pictures = pictures
        self._picture_count = 0
        self._count = 0

    def run_terminal(self, is_complete: Callable[[str], bool]) -> None:
        """Execute what is typed, until Ctrl-D."""
        reader = TerminalReader(is_complete)
        while True:
            try:
                source = reader.read()
                if source is None or source.strip() in _LEAVE:
                    return
                self._execute(source)
            except KeyboardInterrupt:
                # The server notices that the client has left the execution, and interrupts it.
                typer.echo("\nKeyboardInterrupt", err=True)

    def run_script(self, is_complete: Callable[[str], bool]) -> bool:
        """Execute what is piped; return whether the last input succeeded."""
        succeeded = True
        try:
            for source in ScriptReader(sys.stdin, is_complete):
                if source.strip() in _LEAVE:
                    break
                succeeded = self._execute(source)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        return succeeded

    def _execute(self, source: str) -> bool:
        if not source.strip():
            return True
        execution = self._interpreter.execute(
            source,
            language=self._language,
            timeout=self._timeout,
            quotes=True,
            on_stdout=_write_out,
            on_stderr=_write_err,
            on_result=self._show,
        )
        if execution.error is not None:
            _show_error(execution.error)
        self._check_continuity(execution)
        return execution.error is None

    def _check_continuity(self, execution: Execution) -> None:
        """Report that the interpreter was replaced between two inputs, because it ignored an interrupt, for example."""
        count = execution.count or 0
        if count <= self._count and execution.error is None:
            typer.echo("[the interpreter was restarted before this input: variables are lost, files are kept]", err=True)
        self._count = 0 if execution.error is not None and execution.error.name == "ContextRestarting" else count

    def _show(self, result: Result) -> None:
        pictures = [(kind, suffix) for kind, suffix in _PICTURE_SUFFIXES.items() if kind in result.data]
        if pictures and (not result.text or self._pictures is not None):
            kind, suffix = pictures[0]
            typer.echo(self._keep_picture(result.data[kind], kind, suffix))
        elif result.text:
            typer.echo(result.text)
        elif result.data:
            typer.echo(f"[{', '.join(result.data)}]")

    def _keep_picture(self, content: bytes | str, kind: str, suffix: str) -> str:
        data = content.encode() if isinstance(content, str) else content
        if self._pictures is None:
            return f"[{kind}, {len(data) / 1e3:.0f} kB: --pictures DIRECTORY writes it to a file]"
        self._picture_count += 1
        path = self._pictures / f"picture-{self._picture_count}{suffix}"
        path.write_bytes(data)
        return f"[{path}]"


def _show_error(error: ExecutionError) -> None:
    text = error.traceback.rstrip()
    if error.name == "ExitCode":
        text = f"[exit code {error.value}]"
    elif error.name not in text:
        text = f"{error.name}: {error.value}\n{text}".rstrip()
    typer.secho(text, fg="red", err=True)


def _write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_err(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Edit lines with readline, with a history that is kept between shells; without it if Python lacks it."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "coding_gym" / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_HISTORY_LINES)
    # Not the names of files on this machine.
    readline.parse_and_bind("tab: tab-insert")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(path)
            path.chmod(0o600)
