"""Inputs of ``coding-gym shell``: lines that make up a statement."""

from __future__ import annotations

import ast
import codeop
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO

from coding_gym_server.protocol.backends import JUPYTER_PREFIX, canonical_backend, language_of_programs

__all__ = ["ScriptReader", "TerminalReader", "is_complete_of", "is_complete_python", "is_complete_shell"]

_PROMPT, _CONTINUATION = ">>> ", "... "
_CLAUSE = re.compile(r"(else|elif|except|finally)\b")
_UNFINISHED_SHELL = re.compile(r"unexpected end of file|unexpected EOF|here-document .* delimited by end-of-file")


def is_complete_of(backend: str | None) -> Callable[[str], bool]:
    """Return the function that decides whether a text is a complete input for a backend; only its end completes a program."""
    name = "python" if backend is None else canonical_backend(backend)
    if name == "bash":
        return is_complete_shell
    if language_of_programs(name) is not None:
        return lambda _: False
    if name.startswith(JUPYTER_PREFIX):
        return lambda source: not source.endswith("\\\n")
    return is_complete_python


def is_complete_python(source: str) -> bool:
    """Return whether lines of Python need no further line; a compound statement ends at an empty line.

    What is not Python, such as a magic of IPython, is complete.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return codeop.compile_command(source.removesuffix("\n"), "<input>", "single") is not None
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
            return not _is_cell_magic(source) or source.endswith("\n\n")


def is_complete_shell(source: str) -> bool:
    """Return whether lines of a shell script need no further line."""
    if source.endswith("\\\n"):
        return False
    # It parses only.
    parsed = subprocess.run(["bash", "-n"], input=source, capture_output=True, text=True, env={"LC_ALL": "C"}, check=False)
    return not _UNFINISHED_SHELL.search(parsed.stderr)


class TerminalReader:
    """Reads inputs that are typed, with prompts.

    Args:
        is_complete: Returns whether lines make up an input.
    """

    def __init__(self, is_complete: Callable[[str], bool]) -> None:
        self._is_complete = is_complete

    def read(self) -> str | None:
        """Return the next input, which Ctrl-D ends as well; None at the end.

        Raises:
            KeyboardInterrupt: At Ctrl-C, which discards the lines of the input.
        """
        source = ""
        while True:
            try:
                source += input(_CONTINUATION if source else _PROMPT) + "\n"
            except EOFError:
                print()  # noqa: T201
                return source or None
            if self._is_complete(source):
                return source


class ScriptReader:
    """Reads inputs from a pipe, as soon as each is complete.

    Unlike in a terminal, empty lines do not end compound statements, so that files can be piped: the next line that is not
    indented does.

    Args:
        file: The pipe.
        is_complete: Returns whether lines make up an input.
    """

    def __init__(self, file: TextIO, is_complete: Callable[[str], bool]) -> None:
        self._file = file
        self._is_complete = is_complete

    def __iter__(self) -> Iterator[str]:
        source = ""
        while line := self._file.readline():
            if source and self._is_separate(source, line):
                yield source
                source = ""
            source += line if line.endswith("\n") else f"{line}\n"
            if (line.strip() or _is_cell_magic(source)) and self._is_complete(source):
                yield source
                source = ""
        if source.strip():
            yield source

    def _is_separate(self, source: str, line: str) -> bool:
        """Return whether a line begins a new statement after a compound one."""
        if self._is_complete is not is_complete_python or line[0].isspace() or _CLAUSE.match(line):
            return False
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
        return True


def _is_cell_magic(source: str) -> bool:
    """Return whether lines are a cell magic of IPython, which an empty line ends."""
    return source.startswith("%%")
