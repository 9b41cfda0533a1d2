"""Programs in other languages than Python: how they are compiled, and how they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coding_gym_server.languages import Language, LanguageMissingError, find_language
from coding_gym_server.protocol.grading import Checker, FileContent, GradingLimits, Submission
from coding_gym_server.remote_objects.program_messages import RunCommand
from coding_gym_server.server.grading.builds import Build
from coding_gym_server.server.grading.program_run import MemoryLimit, Program, ProgramRun
from coding_gym_server.server.grading.submission_run import RunLimits

__all__ = ["build_of", "compilation_of", "compiler_message", "encoded_source", "language_of", "memory_limit_of", "program_of"]

_MAX_COMPILER_CHARS = 4000
_PYTHON_BYTES = 8 << 20
"""What a process of Python may need, of which it shares the rest with its root."""

_WALL_FACTOR = 3


def language_of(name: str, source: str) -> Language:
    """Return a language with the commands for a program.

    Raises:
        LanguageMissingError: If this sandbox lacks what the language needs.
    """
    language = find_language(name)
    if missing := language.missing():
        raise LanguageMissingError(language, missing)
    return language.of_program(source)


def compilation_of(
    language: Language, source: str, files: Mapping[str, str | FileContent], limits: GradingLimits | RunLimits | None = None
) -> Program:
    """Return the run of the compiler for a program.

    Args:
        language: Its language.
        source: Its source code.
        files: The files beside it.
        limits: Time limits; those of the language if None.
    """
    seconds = language.compile_seconds
    return Program(
        request=RunCommand(language.compile, "", dict(language.variables)),
        limits=limits or GradingLimits(cpu_timeout=seconds, wall_timeout=_WALL_FACTOR * seconds),
        files={**files, language.file: encoded_source(source)},
        fetch=(language.product,),
        max_stdout_chars=_MAX_COMPILER_CHARS,
        max_stderr_chars=_MAX_COMPILER_CHARS,
    )


def build_of(language: Language, run: ProgramRun) -> Build:
    """Return what a run of the compiler has made."""
    product = b"" if run.exit_code else run.files.get(language.product, b"")
    return Build(product, replace(run, files={}))


def compiler_message(language: Language, run: ProgramRun) -> str:
    """Return why a compiler has made nothing, with what it has printed."""
    if run.expired:
        reason = f"it takes more than {language.compile_seconds:g} s"
    elif run.exit_code < 0:
        reason = run.kill_reason or f"signal {-run.exit_code} killed it"
    else:
        reason = f"exit code {run.exit_code}"
    return "\n".join(filter(None, (f"{language.needs[0]}: {reason}", run.stdout.strip(), run.stderr.strip(), *run.refused)))


def encoded_source(source: str) -> FileContent:
    """Return the content of a file with source code, which may have lone surrogates."""
    return FileContent(source.encode("utf-8", "surrogatepass"))


def program_of(language: Language, build: Build | None, source: Submission | Checker, *arguments: str) -> Program:
    """Return the run of a program without its input.

    Args:
        language: Its language.
        build: What the compiler has made of it; None if there is no compiler.
        source: Has its code, files and limits.
        arguments: Arguments of the program.
    """
    content = encoded_source(source.code) if build is None else FileContent(build.product, is_executable=True)
    limits, memory = source.limits, memory_limit_of(source, language)
    max_private_bytes = None if memory is None else memory.max_private_bytes
    command = (*language.run_within(limits.max_memory_bytes), *arguments)
    return Program(
        request=RunCommand(command, "", dict(language.variables), max_private_bytes, language.stack_bytes),
        limits=GradingLimits(
            cpu_timeout=limits.cpu_timeout + language.start_seconds,
            wall_timeout=limits.wall_timeout + language.start_seconds,
            max_output_chars=limits.max_output_chars,
        ),
        memory=memory,
        files={**source.files, language.product: content},
        max_stdout_chars=limits.max_output_chars,
        max_stderr_chars=limits.max_output_chars,
    )


def memory_limit_of(source: Submission | Checker, language: Language | None = None) -> MemoryLimit | None:
    """Return the memory limit of a program; None if there is none.

    Args:
        source: Has its limits.
        language: Its language; None for Python.
    """
    if source.limits.max_memory_bytes is None:
        return None
    if language is None:
        return MemoryLimit(source.limits.max_memory_bytes, _PYTHON_BYTES)
    return MemoryLimit(source.limits.max_memory_bytes, language.memory_bytes, language.reserved_bytes)
