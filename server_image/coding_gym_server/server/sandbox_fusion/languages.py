"""The languages of programs: what to run for each of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from coding_gym_server.languages import Language, UnknownLanguageError, languages
from coding_gym_server.remote_objects.program_messages import RunCommand, RunProgram
from coding_gym_server.server.grading.language_programs import language_of

__all__ = ["AVAILABLE", "LanguageError", "Launch", "launch"]

_DENO_VARIABLES = {"DENO_NO_PROMPT": "1", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
_DENO = ("run", "--quiet", "--allow-all", "--no-lock", "--no-config", "--no-remote", "--no-check")
_DENO_BYTES = 600 << 20
"""What Deno reserves before it runs anything, most of which it never uses."""

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
    request = RunCommand(language.run, stdin, dict(language.variables), max_memory_bytes)
    return Launch(request, language.file, language=language)


def _python(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    return Launch(RunProgram(code, stdin, file="main.py", max_memory_bytes=max_memory_bytes))


def _pytest(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    file = "test_main.py"
    # The program that runs them has no file, and the name that other programs have is free.
    request = RunProgram(_PYTEST.format(file=file), stdin, max_memory_bytes=max_memory_bytes)
    return Launch(request, file, frozenset({"pytest"}))


def _bash(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    return Launch(RunCommand(("bash", "main.sh"), stdin, max_memory_bytes=max_memory_bytes), "main.sh")


def _nodejs(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    if node := _find("node"):
        return Launch(RunCommand((node, "main.js"), stdin, max_memory_bytes=max_memory_bytes), "main.js")
    # Modules are those of CommonJS, as Node.js has them in a file of that name.
    return _deno("nodejs", "main.cjs", stdin, max_memory_bytes)


def _typescript(code: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    return _deno("typescript", "main.ts", stdin, max_memory_bytes)


def _deno(language: str, file: str, stdin: str, max_memory_bytes: int | None) -> Launch:
    deno = _find("deno")
    if deno is None:
        message = f"The language {language!r} requires Deno, which is not installed in this sandbox"
        raise LanguageError(message)
    limit = None if max_memory_bytes is None else max_memory_bytes + _DENO_BYTES
    return Launch(RunCommand((deno, *_DENO, file), stdin, _DENO_VARIABLES, limit), file)


def _find(name: str) -> str | None:
    # Programs of Python packages are installed next to the interpreter, whose directory need not be on the PATH.
    return shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))


AVAILABLE: dict[str, Callable[[str, str, int | None], Launch]] = {
    "python": _python,
    "pytest": _pytest,
    "bash": _bash,
    "nodejs": _nodejs,
    "typescript": _typescript,
}
"""What to run for a program in each language: source code, standard input and memory limit to ``Launch``."""
