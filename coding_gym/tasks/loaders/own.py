"""The suites of problems that were written for this package: the TOML files in ``envs_registry/suites``.

Each suite is a directory, each problem a file in it; ``docs/suites.md`` has the format. Beside its task, a problem says how
solutions go wrong: its mutants, which the tests have to find.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.screen_tests import ScreenTests
from coding_gym.tasks.task import Task
from coding_gym_server.grading.messages import Asserts, GradingLimits, Programs, UnitTests

__all__ = ["Problem", "load_own", "load_problems", "own_suites"]

_SUFFIX = ".toml"

Text = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task, and what is known of it beyond that.

    Attributes:
        task: The task, with its reference solution.
        stub: The reference with nothing in its functions, which must not pass.
        mutants: Wrong variants of the reference, of which each test must find at least one.
    """

    task: Task
    stub: str
    mutants: tuple[str, ...]


class _ProblemFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a file holds.

    Attributes:
        prompt: What the agent is told.
        entry_point: The function or class that is asked for; absent if it is a program.
        difficulty: How hard it is.
        tags: What it is about.
        files: What the working directory holds.
        limits: What a submission may use.
        reference: A solution.
        mutants: Wrong solutions: the source, or what to replace in the reference, where it is once, and what by.
        tests: What decides.
    """

    prompt: Text
    entry_point: str | None = None
    difficulty: Literal["easy", "medium", "hard"]
    tags: list[str] = []
    files: dict[str, str] = {}
    limits: GradingLimits = GradingLimits()
    reference: Text
    mutants: Annotated[list[str | tuple[str, str]], msgspec.Meta(min_length=1)]
    tests: Asserts | UnitTests | Programs | ScreenTests


def own_suites() -> tuple[str, ...]:
    """Return the names of the suites."""
    return tuple(sorted(entry.name for entry in _root().iterdir() if entry.is_dir()))


def load_own(name: str) -> list[Task]:
    """Return the tasks of a suite.

    Args:
        name: One of ``own_suites``.

    Raises:
        ConfigurationError: There is no such suite.
    """
    return [problem.task for problem in load_problems(name)]


def load_problems(suite: str | Path) -> list[Problem]:
    """Return the problems of a suite, in the order of their names.

    Args:
        suite: One of ``own_suites``, or a directory of files in the same format.

    Raises:
        ConfigurationError: There is no such suite, or a file is not in the format.
    """
    if isinstance(suite, str) and suite not in own_suites():
        message = f"Expected one of the suites {', '.join(own_suites())}, got {suite!r}; pass a directory as a Path"
        raise ConfigurationError(message)
    directory = _root() / suite if isinstance(suite, str) else suite
    entries = sorted((entry for entry in directory.iterdir() if entry.name.endswith(_SUFFIX)), key=lambda entry: entry.name)
    if not entries:
        message = f"Expected problems, files whose names end with {_SUFFIX}, in {directory}, found none"
        raise ConfigurationError(message)
    return [_read(entry, suite=directory.name) for entry in entries]


def _root() -> Traversable:
    return package_files("envs_registry") / "suites"


def _read(entry: Traversable, *, suite: str) -> Problem:
    name = entry.name.removesuffix(_SUFFIX)
    try:
        content = msgspec.toml.decode(entry.read_bytes(), type=_ProblemFile)
        task = Task(
            id=f"{suite}/{name}",
            prompt=content.prompt.strip(),
            tests=content.tests,
            entry_point=content.entry_point,
            files=content.files,
            limits=content.limits,
            reference=content.reference,
            metadata={"suite": suite, "difficulty": content.difficulty, "tags": tuple(content.tags)},
        )
        mutants = tuple(_mutate(content.reference, mutant) for mutant in content.mutants)
        return Problem(task=task, stub=_stub(content.reference, content.entry_point), mutants=mutants)
    except (msgspec.MsgspecError, ValueError, SyntaxError) as error:
        message = f"{entry} is not in the format of a problem: {error}"
        raise ConfigurationError(message) from error


def _mutate(reference: str, mutant: str | Sequence[str]) -> str:
    if isinstance(mutant, str):
        return mutant
    old, new = mutant
    if (found := reference.count(old)) != 1 or old == new:
        message = f"expected the mutant {old!r} -> {new!r} to replace what is in the reference once, found {found} places"
        raise ValueError(message)
    return reference.replace(old, new)


def _stub(reference: str, entry_point: str | None) -> str:
    """Return the reference with nothing in its functions; of a program, nothing at all."""
    return "pass\n" if entry_point is None else ast.unparse(_Hollow().visit(ast.parse(reference))) + "\n"


class _Hollow(ast.NodeTransformer):
    """Takes the bodies out of functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Pass()]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.body = [ast.Pass()]
        return node
