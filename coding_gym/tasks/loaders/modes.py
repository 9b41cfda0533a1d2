"""Choice of the grading mode of tasks that are loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
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
_MUTATORS = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "update",
}
_FIXTURES = {"pytest.fixture", "pytest.mark.parametrize", "pytest.mark.usefixtures"}


def with_grading(task: Task, grading: GradingMode | str | None) -> Task:
    """Return a task that is graded in a mode; unchanged if the mode is None.

    Raises:
        ConfigurationError: If the task does not permit the mode.
    """
    return task if grading is None else replace(task, grading=grading)


def suited_mode(tests: Asserts | UnitTests, *, reference: str | None) -> GradingMode:
    """Return the mode that tests require: isolated, unless their source evidently depends on sharing a process.

    That is so if tests patch what the submission uses, seed a generator from which only the submission draws, change containers
    that are attributes of objects, or are classes, or functions with fixtures or parameters, that only pytest can run. The
    faithful mode requires a reference: without one, the mode is isolated.
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
        or any(_is_shared(container, names) for node in nodes for container in _changed_containers(node))
        or not used.isdisjoint(_FIXTURES)
        or any(_is_for_pytest(node) for node in module.body)
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


def _changed_containers(node: ast.AST) -> Iterator[ast.expr]:
    """Return the containers whose items a node sets or deletes, or whose mutating methods it calls."""
    match node:
        case ast.Subscript(value=container, ctx=ast.Store() | ast.Del()):
            yield container
        case ast.Call(func=ast.Attribute(value=container, attr=method)) if method in _MUTATORS:
            yield container


def _is_shared(container: ast.expr, names: dict[str, str]) -> bool:
    """Return whether a container is an attribute of an object: not of ``self``, the test case, nor of a module."""
    while isinstance(container, ast.Subscript):
        container = container.value
    if not isinstance(container, ast.Attribute):
        return False
    owner = container.value
    is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
    return not is_own and _path(container, names) in ("", "os.environ")


def _is_for_pytest(node: ast.stmt) -> bool:
    """Return whether a statement is a test class other than a ``TestCase``, or a test function with parameters."""
    if isinstance(node, ast.ClassDef):
        has_tests = any(isinstance(item, ast.FunctionDef) and item.name.startswith("test") for item in node.body)
        return has_tests and node.name.startswith("Test") and not any("TestCase" in ast.unparse(base) for base in node.bases)
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
