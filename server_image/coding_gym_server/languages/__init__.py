"""Languages of programs: what compiles and runs them, and what a sandbox needs for that, from ``languages.toml``.

Python is none of these: its programs run in processes that are forked from a warm interpreter.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

__all__ = [
    "PYTHON",
    "Language",
    "LanguageKernel",
    "LanguageMissingError",
    "UnknownLanguageError",
    "distributions_of",
    "find_language",
    "language_of_kernel",
    "languages",
    "packages_of",
    "preparations_of",
]

PYTHON = "python"

_TABLE = Path(__file__).with_name("languages.toml")
_NAME = "main"


class UnknownLanguageError(ValueError):
    """An unknown language."""


class LanguageMissingError(ValueError):
    """A sandbox lacks what a language needs.

    Args:
        language: The language.
        missing: The programs that it lacks.
    """

    def __init__(self, language: Language, missing: Iterable[str]) -> None:
        super().__init__(
            f"The sandbox lacks {', '.join(missing)}, which programs in {language.name} need: pass "
            f"languages=({language.name!r},), or provider='local' on a machine after {language.installation!r}"
        )


class LanguageKernel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The Jupyter kernel that executes the cells of a language.

    Attributes:
        name: Its name.
        packages: Debian packages that have it.
        distributions: Distributions of the Python Package Index that have it.
    """

    name: str
    packages: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()


class _Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A language, as the table has it; see ``Language``."""

    aliases: tuple[str, ...] = ()
    file: str
    name_of_file: str = ""
    compile: tuple[str, ...] = ()
    product: str = ""
    run: tuple[str, ...]
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    preparation: str = ""
    variables: dict[str, str] = {}
    compile_seconds: float = 20.0
    start_seconds: float = 0.0
    memory_bytes: int = 8 << 20
    reserved_bytes: int = 0
    stack_bytes: int = 8 << 20
    memory_options: tuple[str, ...] = ()
    kernel: LanguageKernel | None = None
    variants: dict[str, tuple[str, ...]] = {}


class Language(msgspec.Struct, kw_only=True, frozen=True):
    """A language of programs. ``{name}`` in the file and the commands stands for the name of the program.

    Attributes:
        name: Its name.
        file: File of the working directory that has the source.
        name_of_file: Regular expression whose group is the name of a program where it first matches in the source; if there is
            none, or it does not match, the name is ``main``.
        compile: Command that compiles the source; empty if ``run`` runs it.
        product: File that the compiler produces, the only one that ``run`` needs; the source if there is no compiler.
        run: Command that runs a program. The name of the product is at the end of one of its parts.
        needs: Programs and absolute paths of which all must be there.
        packages: Debian packages that have them.
        distributions: Distributions of the Python Package Index that have them, and that the default image has.
        preparation: Command of the shell that root runs in an image with its packages, so that compilations take less time.
        variables: Environment variables of both commands.
        compile_seconds: CPU time in which a program has to be compiled.
        start_seconds: CPU time that an empty program takes to start, which limits do not count.
        memory_bytes: Memory that an empty program has in use, which limits do not count.
        reserved_bytes: Private memory that it reserves, and most of which no program uses.
        stack_bytes: Maximum size of the stack of a program's first thread; its other ones may reserve as much.
        memory_options: Arguments that tell an interpreter how much memory a program may have, before the others of ``run``;
            ``{mebibytes}`` stands for the number.
        kernel: The kernel that keeps the state of a session between its cells; None if each is a program.
    """

    name: str
    file: str
    name_of_file: str
    compile: tuple[str, ...]
    product: str
    run: tuple[str, ...]
    needs: tuple[str, ...]
    packages: tuple[str, ...]
    distributions: tuple[str, ...]
    preparation: str
    variables: Mapping[str, str]
    compile_seconds: float
    start_seconds: float
    memory_bytes: int
    reserved_bytes: int
    stack_bytes: int
    memory_options: tuple[str, ...]
    kernel: LanguageKernel | None

    @property
    def installation(self) -> str:
        """Command that installs what a machine lacks."""
        return f"apt install {' '.join(self.packages)}" if self.packages else f"pip install {' '.join(self.distributions)}"

    def run_within(self, max_bytes: int | None) -> tuple[str, ...]:
        """Return the command that runs a program with a memory limit; None for none."""
        if max_bytes is None:
            return self.run
        options = (option.replace("{mebibytes}", str(max(1, max_bytes >> 20))) for option in self.memory_options)
        return (self.run[0], *options, *self.run[1:])

    def of_program(self, source: str) -> Language:
        """Return the language with the file and the commands for a program."""
        found = re.finditer(self.name_of_file, source) if self.name_of_file else ()
        name = next((match[1] for match in found if match[1]), _NAME)
        return msgspec.structs.replace(
            self,
            file=self.file.replace("{name}", name),
            compile=tuple(part.replace("{name}", name) for part in self.compile),
            run=tuple(part.replace("{name}", name) for part in (_found(self.run[0]) or self.run[0], *self.run[1:])),
        )

    def run_in(self, directory: str) -> tuple[str, ...]:
        """Return the command that runs a program whose product is in a directory, whatever the working directory is."""
        path = f"{directory}/{self.product}"
        return tuple(
            part.removesuffix(self.product).removesuffix("./") + path if part.endswith(self.product) else part
            for part in self.run
        )

    def missing(self) -> list[str]:
        """Return the programs that this machine lacks."""
        return [program for program in self.needs if _found(program) is None]


def _found(program: str) -> str | None:
    """Return a program of this machine, or of this interpreter's Python packages, which may not be on the PATH; or a path."""
    if os.path.isabs(program):
        return program if os.path.exists(program) else None
    if shutil.which(program) is not None:
        return program
    return shutil.which(program, path=os.path.dirname(sys.executable))


@functools.cache
def languages() -> dict[str, Language]:
    """Return all languages but Python, by name; variants such as ``cpp20`` are languages of their own."""
    found = {}
    for name, entry in _table().items():
        for variant, options in {name: (), **entry.variants}.items():
            found[variant] = Language(
                name=variant,
                file=entry.file,
                name_of_file=entry.name_of_file,
                compile=(*entry.compile, *options) if entry.compile else (),
                product=entry.product or entry.file,
                run=entry.run,
                needs=entry.needs or tuple(dict.fromkeys(_programs(entry))),
                packages=entry.packages,
                distributions=entry.distributions,
                preparation=entry.preparation,
                variables=entry.variables,
                compile_seconds=entry.compile_seconds,
                start_seconds=entry.start_seconds,
                memory_bytes=entry.memory_bytes,
                reserved_bytes=entry.reserved_bytes,
                stack_bytes=entry.stack_bytes,
                memory_options=entry.memory_options,
                kernel=entry.kernel,
            )
    return found


def find_language(name: str) -> Language:
    """Return the language of a name or an alias, in any case.

    Raises:
        UnknownLanguageError: If there is none.
    """
    wanted = name.lower()
    canonical = _aliases().get(wanted, wanted)
    if canonical not in languages():
        message = f"expected a language, one of {', '.join([PYTHON, *languages()])}, got {name!r:.100}"
        raise UnknownLanguageError(message)
    return languages()[canonical]


def packages_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the Debian packages of languages and of their kernels.

    Raises:
        UnknownLanguageError: If one is not known.
    """
    found = [find_language(name) for name in names if name != PYTHON]
    needed = [*(language.packages for language in found), *(kernel.packages for kernel in _kernels_of(found))]
    return tuple(dict.fromkeys(package for packages in needed for package in packages))


def preparations_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the commands of the shell that root runs in an image with the packages of languages.

    Raises:
        UnknownLanguageError: If one is not known.
    """
    found = (find_language(name).preparation for name in names if name != PYTHON)
    return tuple(dict.fromkeys(filter(None, found)))


def distributions_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distributions of the Python Package Index that have the kernels of languages.

    Raises:
        UnknownLanguageError: If one is not known.
    """
    kernels = _kernels_of(find_language(name) for name in names if name != PYTHON)
    return tuple(dict.fromkeys(distribution for kernel in kernels for distribution in kernel.distributions))


def language_of_kernel(name: str) -> Language | None:
    """Return the language whose cells a Jupyter kernel executes; None if the table does not have the kernel."""
    return next((found for found in languages().values() if found.kernel is not None and found.kernel.name == name), None)


@functools.cache
def _table() -> dict[str, _Entry]:
    return msgspec.convert(tomllib.loads(_TABLE.read_text(encoding="utf-8")), dict[str, _Entry])


@functools.cache
def _aliases() -> dict[str, str]:
    return {alias: name for name, entry in _table().items() for alias in entry.aliases}


def _kernels_of(found: Iterable[Language]) -> list[LanguageKernel]:
    return [language.kernel for language in found if language.kernel is not None]


def _programs(entry: _Entry) -> list[str]:
    return [command[0] for command in (entry.compile, entry.run) if command and not command[0].startswith("./")]
