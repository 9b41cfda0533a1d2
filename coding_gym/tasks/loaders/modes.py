"""Choice of the grading mode of tasks that are loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from coding_gym.tasks.submission import parse
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, GradingMode, UnitTests

__all__ = ["suited_mode", "with_grading"]

_PATCHES = ("unittest.mock.patch", "mock.patch")
_CROSSING_TARGETS = ("builtins.", "sys.std")
"""Targets of patches that reach a submission in another process, too."""
_SEEDS = {"random.seed": "random.", "numpy.random.seed": "numpy.random."}
"""Functions that seed a generator of the process, with the prefix of the functions that draw from it."""
_FIXTURES = {"pytest.fixture", "pytest.mark.parametrize", "pytest.mark.usefixtures"}


def with_grading(task: Task, grading: GradingMode | str | None) -> Task:
    """Return a task that is graded in a mode; unchanged if the mode is None.

    Raises:
        ConfigurationError: If the task does not permit the mode.
    """
    return task if grading is None else replace(task, grading=grading)


def suited_mode(tests: Asserts | UnitTests, *, reference: str | None) -> GradingMode:
    """Return the mode that tests require: isolated, unless their source evidently depends on sharing a process.

    That is so if tests patch what the submission uses, seed a generator from which only the submission draws, or are functions
    with fixtures or parameters of pytest. The faithful mode requires a reference: without one, the mode is isolated.
    """
    source = tests.source if isinstance(tests, UnitTests) else "\n".join([tests.setup, *tests.cases])
    module = parse(source) if reference is not None else None
    return GradingMode.FAITHFUL if module is not None and _shares_process(module) else GradingMode.ISOLATED


def _shares_process(module: ast.Module) -> bool:
    names = _imported_names(module)
    nodes = list(ast.walk(module))
    used = {_path(node, names) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
    return (
        any(_is_patch(node, names) for node in nodes if isinstance(node, ast.Call))
        or any(seed in used and not _draws(used - {seed}, prefix) for seed, prefix in _SEEDS.items())
        or not used.isdisjoint(_FIXTURES)
        or any(_has_fixtures(node) for node in module.body)
    )


def _is_patch(call: ast.Call, names: dict[str, str]) -> bool:
    path = _path(call.func, names)
    is_patch = any(path == patch or path.startswith(f"{patch}.") for patch in _PATCHES)
    match call.args:
        case [ast.Constant(value=str() as target), *_] if target.startswith(_CROSSING_TARGETS):
            return False
    return is_patch


def _draws(used: Iterable[str], prefix: str) -> bool:
    return any(path.startswith(prefix) for path in used)


def _has_fixtures(node: ast.stmt) -> bool:
    """Return whether a statement is a test function with parameters, which pytest supplies."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test"):
        return False
    arguments = node.args
    return len(arguments.posonlyargs) + len(arguments.args) > len(arguments.defaults) or None in arguments.kw_defaults


def _imported_names(module: ast.Module) -> dict[str, str]:
    """Return the names that imports bind, with the dotted paths of what they refer to."""
    found: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def _path(node: ast.expr, names: dict[str, str]) -> str:
    """Return the dotted path of what an expression refers to; empty if it is not a name, or an attribute of an import."""
    match node:
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Attribute(value=value, attr=name):
            owner = _path(value, names)
            return f"{owner}.{name}" if owner else ""
    return ""
