"""The languages of programs: what to run for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from coding_gym_server.languages import Language, UnknownLanguageError, find_language, languages
from coding_gym_server.remote_objects.program_messages import RunCommand, RunProgram
from coding_gym_server.server.grading.language_programs import language_of

__all__ = ["AVAILABLE", "LanguageError", "Launch", "launch"]

_PYTEST = "import sys, pytest\nsys.exit(pytest.main(['-p', 'no:cacheprovider', {file!r}]))\n"


class LanguageError(ValueError):
    """A language is not available in this sandbox."""


class Launch(NamedTuple):
    """What to run for a program.

    Attributes:
        request: The request to the process that runs it.
        file: File of the working directory that has its source; None if none has, or the process writes it.
        libraries: Modules to import in advance.
        language: Its language in the table, which may have a compiler; None if it is another one.
    """

    request: RunProgram | RunCommand
    file: str | None = None
    libraries: frozenset[str] = frozenset()
    language: Language | None = None


def launch(language: str, code: str, stdin: str, max_memory_bytes: int | None, *, keeps_file: bool = False) -> Launch:
    """Return what to run for a program.

    Args:
        language: Name of the language.
        code: The source code.
        stdin: Standard input.
        max_memory_bytes: Limit on the private memory of each process, None for none.
        keeps_file: Whether a file with the source remains.

    Raises:
        LanguageError: If the language is not available.
        LanguageMissingError: If this sandbox lacks what it needs.
    """
    if language not in AVAILABLE:
        return _from_table(language, code, stdin, max_memory_bytes)
    launched = AVAILABLE[language](code, stdin, max_memory_bytes)
    if keeps_file and isinstance(launched.request, RunProgram):
        return launched._replace(request=msgspec.structs.replace(launched.request, keeps_file=True))
    return launched


def _from_table(name: str, code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    try:
        language = language_of(name, code)
    except UnknownLanguageError:
        known = ", ".join([*AVAILABLE, *(known for known in languages() if known not in AVAILABLE)])
        message = f"The language {name!r} is not available in this sandbox; available: {known}"
        raise LanguageError(message) from None
    limit = None if max_memory_bytes is None else max_memory_bytes + language.memory_bytes + language.reserved_bytes
    command = language.run_within(max_memory_bytes)
    request = RunCommand(command, stdin, dict(language.variables), limit, language.stack_bytes)
    return Launch(request, language.file, language=language)


def _python(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    return Launch(RunProgram(code, stdin, file="main.py", max_memory_bytes=max_memory_bytes))


def _pytest(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    file = "test_main.py"
    # The program that runs them has no file, and the name that other programs have is free.
    request = RunProgram(_PYTEST.format(file=file), stdin, max_memory_bytes=max_memory_bytes)
    return Launch(request, file, frozenset({"pytest"}))


def _nodejs(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    if not find_language("nodejs").missing():
        return _from_table("nodejs", code, stdin, max_memory_bytes)
    launched = _from_table("typescript", code, stdin, max_memory_bytes)
    assert isinstance(launched.request, RunCommand)
    # Modules are those of CommonJS, as Node.js has them in a file of that name.
    command = (*launched.request.command[:-1], "main.cjs")
    return Launch(msgspec.structs.replace(launched.request, command=command), "main.cjs")


AVAILABLE: dict[str, Callable[[str, str, int | None], Launch]] = {
    "python": _python,
    "pytest": _pytest,
    "nodejs": _nodejs,
}
"""What to run for a program in each language: source code, standard input and memory limit to ``Launch``."""
