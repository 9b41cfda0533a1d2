"""Loader of the task suites bundled with this package: the TOML files in ``envs_registry/suites``.

Each suite is a directory with one file per problem; ``docs/suites.md`` documents the format. Besides its task, a problem
lists mutants: typical wrong solutions, which the tests must detect.
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

from coding_gym._syntax_tree import parse
from coding_gym._validation import hint
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.screen.tests import ScreenTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, GradingLimits, GradingMode, Programs, UnitTests

__all__ = ["Problem", "bundled_suites", "load_bundled", "load_problems"]

_SUFFIX = ".toml"

Text = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task with the data that validates its tests.

    Attributes:
        task: The task, with its reference solution.
        stub: The reference solution with empty function bodies, which must not pass.
        mutants: Wrong variants of the reference solution; each test must detect at least one.
    """

    task: Task
    stub: str
    mutants: tuple[str, ...]


class _ProblemFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Schema of a problem file.

    Attributes:
        prompt: The problem statement given to the agent.
        entry_point: The required function or class; absent if the solution is a program.
        difficulty: Difficulty of the problem.
        tags: Topics.
        files: Initial content of the working directory.
        sample_input: Standard input of an example of the prompt, for programs.
        limits: Resource limits of a submission.
        grading: Where the tests run.
        reference: Reference solution.
        mutants: Wrong solutions: whole sources, or pairs of a fragment that occurs once in the reference and its replacement.
        tests: The hidden tests.
    """

    prompt: Text
    entry_point: str | None = None
    difficulty: Literal["easy", "medium", "hard"]
    tags: list[str] = []
    files: dict[str, str] = {}
    sample_input: str | None = None
    limits: GradingLimits = GradingLimits()
    grading: GradingMode | None = None
    reference: Text
    mutants: Annotated[list[str | tuple[str, str]], msgspec.Meta(min_length=1)]
    tests: Asserts | UnitTests | Programs | ScreenTests


def bundled_suites() -> tuple[str, ...]:
    """Return the names of the bundled suites."""
    return tuple(sorted(entry.name for entry in _root().iterdir() if entry.is_dir()))


def load_bundled(name: str, *, grading: GradingMode | str | None = None) -> list[Task]:
    """Return the tasks of a bundled suite.

    Args:
        name: One of ``bundled_suites``.
        grading: Where the tests run, see ``Task``; None for what the problems say.

    Raises:
        ConfigurationError: If there is no such suite, or its tests do not permit the mode.
    """
    return [with_grading(problem.task, grading) for problem in load_problems(name)]


def load_problems(suite: str | Path) -> list[Problem]:
    """Return the problems of a suite, sorted by name.

    Args:
        suite: One of ``bundled_suites``, or a directory of files in the same format.

    Raises:
        ConfigurationError: If there is no such suite, or a file is not in the format.
    """
    if isinstance(suite, str) and suite not in bundled_suites():
        known = bundled_suites()
        message = (
            f"Expected one of the suites {', '.join(known)}, got {suite!r}{hint(suite, known)}; pass a directory as a Path"
        )
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
            sample_input=content.sample_input,
            limits=content.limits,
            grading=content.grading,
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
    """Return the reference solution with empty function bodies; an empty program if there is no entry point."""
    return "pass\n" if entry_point is None else ast.unparse(_BodyRemover().visit(parse(reference))) + "\n"


class _BodyRemover(ast.NodeTransformer):
    """Replaces the bodies of functions with ``pass``."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Pass()]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.body = [ast.Pass()]
        return node
