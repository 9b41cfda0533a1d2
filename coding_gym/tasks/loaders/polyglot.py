"""MultiPL-E and HumanEval-X: functions in many languages, with tests that are the end of their program.

A submission continues the prompt, and the tests follow it in one file, as the evaluators of these suites run them: it passes if
the program exits with 0. A submission can do that itself, before its tests run, so that verdicts are weak.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from coding_gym.tasks.loaders.humaneval import humaneval_task
from coding_gym.tasks.loaders.polyglot_parts import (
    CPP_HEADERS,
    CS_ASSERTS,
    GO_ASSERTS,
    GO_IMPORTS,
    JAVA_TUPLES,
    JS_ASSERTS,
    LUA_UNIT,
    PERL_DEEP,
    go_main,
    java_main,
)
from coding_gym.tasks.loaders.rows import RowError, TaskRow, known_language
from coding_gym.tasks.task import Task
from coding_gym_server.languages import PYTHON, UnknownLanguageError
from coding_gym_server.protocol.grading import OutputRule, ProgramCase, Programs

__all__ = ["humaneval_x_task", "is_humaneval_x", "multipl_e_task"]

_Parts = tuple[str, str]
"""Prefix and suffix of a submission."""

_HUMANEVAL_X = {"CPP": "cpp11", "Go": "go", "Java": "java", "JavaScript": "javascript", "Python": PYTHON, "Rust": "rust"}
"""Languages by the first part of an id. Its evaluator compiles C++ of 2011."""

_GO_FILE = "go_test.go"
_CRATES = re.compile(r"use (?:rand::Rng|regex::Regex|md5);\n")
"""Imports of crates, which all declarations in Rust have, and only four programs use."""


def multipl_e_task(row: TaskRow) -> Task:
    """Return the task of a row of MultiPL-E: ``language``, ``prompt``, ``tests`` and ``stop_tokens``.

    Raises:
        RowError: If the row is not in this format, or the table of languages lacks its language.
    """
    name = row.text("language")
    language = _known("go" if name == _GO_FILE else name)
    prefix, suffix = row.text("prompt"), "\n" + row.text("tests")
    adapt = _MULTIPL_E.get(language)
    if adapt is not None:
        prefix, suffix = adapt(prefix, suffix)
    stop = tuple(row.texts("stop_tokens"))
    return _task(row, row.text("name", default=row.id), language, (prefix, suffix), "MultiPL-E", stop=stop)


def humaneval_x_task(row: TaskRow) -> Task:
    """Return the task of a row of HumanEval-X: ``prompt``, ``declaration``, ``canonical_solution`` and ``test``.

    Those in Python are tasks of HumanEval, whose tests do not run in the process of the submission.

    Raises:
        RowError: If the row is not in this format.
    """
    language = _HUMANEVAL_X[row.id.partition("/")[0]]
    if language == PYTHON:
        name = re.findall(r"^def (\w+)", row.text("declaration"), re.MULTILINE)
        fields = {**row.fields, "entry_point": name[-1] if name else ""}
        return humaneval_task(TaskRow(fields, number=0, source=row.id, options=row.options))
    return _task(row, row.id, language, _HUMANEVAL_X_PARTS[language](row), "HumanEval-X")


def is_humaneval_x(row: TaskRow) -> bool:
    """Return whether the id of a row begins with a language of HumanEval-X."""
    return row.id.partition("/")[0] in _HUMANEVAL_X


def _task(row: TaskRow, name: str, language: str, parts: _Parts, source: str, *, stop: tuple[str, ...] = ()) -> Task:
    if row.options.language is not None and known_language(row.options.language) != known_language(language):
        message = f"it is in {language}, and language={row.options.language!r} is another one"
        raise RowError(message)
    prefix, suffix = parts
    return Task(
        id=name,
        prompt=row.text("prompt"),
        tests=Programs(
            cases=(ProgramCase(stdout=""),),
            compare=OutputRule.ANY,
            random_seed=row.options.random_seed,
            language=language,
            prefix=prefix,
            suffix=suffix,
            stop=stop,
        ),
        reference=row.text("canonical_solution", default="") or None,
        limits=row.limits,
        metadata=row.metadata("language", source=source),
    )


def _known(name: str) -> str:
    try:
        return known_language(name)
    except UnknownLanguageError as error:
        message = f"its programs cannot be run: {error}. Skip such rows with unsupported='skip'"
        raise RowError(message) from error


def _java(prefix: str, suffix: str) -> _Parts:
    return prefix.replace("import org.javatuples.*;\n", ""), f"{suffix}\n{JAVA_TUPLES}{java_main('Problem')}"


def _go(prefix: str, suffix: str) -> _Parts:
    return re.sub(r"^package \w+", "package main", prefix, flags=re.MULTILINE), suffix + go_main(suffix)


_MULTIPL_E: dict[str, Callable[[str, str], _Parts]] = {
    "csharp": lambda prefix, suffix: (prefix, f"{suffix}\n{CS_ASSERTS}"),
    "go": _go,
    "java": _java,
    "lua": lambda prefix, suffix: (prefix, f"\n{LUA_UNIT}{suffix}"),
    "perl": lambda prefix, suffix: (prefix, f"\n{PERL_DEEP}{suffix}"),
}
"""How the prompt and the tests of a language are adapted: replacements of libraries, and calls of the tests."""


def _x_cpp(row: TaskRow) -> _Parts:
    prompt = row.text("prompt")
    headers = "".join(f"{header}\n" for header in CPP_HEADERS if header not in prompt)
    return f"{headers}\n{prompt}", f"\n{row.text('test')}"


def _x_go(row: TaskRow) -> _Parts:
    test, prompt = row.text("test"), row.text("prompt").replace(row.text("import", default=""), "")
    return f"package main\n\n{GO_IMPORTS}\n{prompt}", f"\n{test}\n{GO_ASSERTS}{go_main(test)}"


def _x_rust(row: TaskRow) -> _Parts:
    declaration, test = row.text("declaration"), row.text("test")
    names = re.findall(r"#\[test\]\s*fn (\w+)", test)
    calls = "".join(f" tests::{name}();" for name in names)
    test = re.sub(r"#\[test\]\s*fn ", "pub fn ", test.replace("#[cfg(test)]\n", ""))
    return row.text("prompt") + _CRATES.sub("", declaration), f"\n{test}\nfn main() {{{calls} }}\n"


_HUMANEVAL_X_PARTS: dict[str, Callable[[TaskRow], Any]] = {
    "cpp11": _x_cpp,
    "go": _x_go,
    "java": lambda row: (row.text("prompt"), f"\n{row.text('test')}"),
    "javascript": lambda row: (row.text("prompt"), f"\n{JS_ASSERTS}{row.text('test')}"),
    "rust": _x_rust,
}
