"""Suites of tests, and which of them a change may have broken: ``tests/suites.toml`` is their table.

    python tests/support/suites.py

prints the paths of the tests of suites that may have changed since the last complete run, whose commit ``.ci/full`` names; with
``--full``, of all suites. A suite may have changed if a file has that belongs to it, to a product that it uses, to what it
tests of the core, or to what its tests import of ``tests/support``; if a file of the core has that imports its product; and, as
any suite, if the protocol, the requirements of the package or the public names of the core have. Without such a commit in the
history, all may have.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["ROOT", "SUITES", "Suite", "imported_files", "suite_of"]

ROOT = Path(__file__).parents[2]
_FULL = ROOT / ".ci" / "full"
_PROTOCOL = "server_image/coding_gym_server/protocol"
_PLUGINS = {path.name: path.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/coding_gym_*")}
_SOURCES = {
    "benchmarks": "benchmarks",
    "coding_gym": "coding_gym",
    "coding_gym_server": "server_image/coding_gym_server",
    "plugins": "plugins",
    "tests": "tests",
    **_PLUGINS,
}


@dataclass(frozen=True)
class Suite:
    """A suite; its paths are relative to the checkout."""

    name: str
    tests: tuple[str, ...]
    product: tuple[str, ...]
    uses: tuple[str, ...] = ()
    core: tuple[str, ...] = ()

    def has_test(self, path: str) -> bool:
        return _is_below(path, self.tests)

    def has_product(self, path: str) -> bool:
        return _is_below(path, self.product)


def _read_table() -> dict[str, Suite]:
    table = tomllib.loads((ROOT / "tests" / "suites.toml").read_text(encoding="utf-8"))
    return {name: Suite(name, **{key: tuple(paths) for key, paths in entry.items()}) for name, entry in table.items()}


def _is_below(path: str, parents: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(parent) for parent in parents)


SUITES = _read_table()


def suite_of(path: str) -> Suite | None:
    """Return the suite that a file belongs to; None for the core."""
    return next((suite for suite in SUITES.values() if suite.has_test(path) or suite.has_product(path)), None)


@functools.cache
def imported_files(path: str) -> frozenset[str]:
    """Return the files of the checkout that a file imports, also where it does so later or only for annotations."""
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(file for module in _imports(tree) if (file := _file_of(module)) is not None)


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        # Modules that are imported by name: those of commands, and of names that a package imports when they are used.
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("coding_gym"):
            yield node.value.partition(":")[0]


def _file_of(module: str) -> str | None:
    package, *parts = module.split(".")
    if package not in _SOURCES:
        return None
    base = "/".join([_SOURCES[package], *parts])
    return next((path for path in (f"{base}.py", f"{base}/__init__.py") if (ROOT / path).is_file()), None)


def _changed_suites() -> list[Suite]:
    """Return the suites that may have changed."""
    base = _last_full_run()
    if base is None:
        return list(SUITES.values())
    changed = _git("diff", "--name-only", "--no-renames", base).split()
    changed += _git("ls-files", "--others", "--exclude-standard").split()
    if any(_changes_what_all_use(path, base) for path in changed):
        return list(SUITES.values())
    return [suite for suite in SUITES.values() if any(_concerns(path, suite) for path in changed)]


def _changes_what_all_use(path: str, base: str) -> bool:
    """Return whether a changed file changes requirements, the protocol or public names of the core."""
    if path == "pyproject.toml":
        before, now = (tomllib.loads(text)["project"] for text in _versions(path, base))
        return before != now
    if path.endswith(".py") and path.startswith("coding_gym/") and "/_" not in path and suite_of(path) is None:
        before, now = (_public_names(text) for text in _versions(path, base))
        return before != now
    return path.startswith(_PROTOCOL)


def _concerns(path: str, suite: Suite) -> bool:
    return (
        suite.has_test(path)
        or _is_below(path, suite.core)
        or any(SUITES[name].has_product(path) for name in (suite.name, *suite.uses))
        or path in _imported_by(suite)
        or (_is_source(path) and any(map(suite.has_product, imported_files(path))))
    )


@functools.cache
def _imported_by(suite: Suite) -> frozenset[str]:
    """Return the files of tests that the tests of a suite import."""
    found: set[str] = set()
    left = {str(path.relative_to(ROOT)) for name in suite.tests for path in _python_files(ROOT / name)}
    while left:
        files = {file for path in left for file in imported_files(path) if _is_test(file)}
        left = files - found
        found |= files
    return frozenset(found)


def _python_files(path: Path) -> Iterable[Path]:
    return path.rglob("*.py") if path.is_dir() else [path]


def _is_source(path: str) -> bool:
    return path.endswith(".py") and not _is_test(path) and (ROOT / path).is_file()


def _is_test(path: str) -> bool:
    return "tests" in PurePosixPath(path).parts


def _versions(path: str, base: str) -> tuple[str, str]:
    """Return the text of a file at a commit and now, empty if there is none."""
    shown = subprocess.run(["git", "show", f"{base}:{path}"], cwd=ROOT, capture_output=True, text=True, check=False)
    file = ROOT / path
    return shown.stdout, file.read_text(encoding="utf-8") if file.is_file() else ""


def _public_names(source: str) -> list[str]:
    """Return the public functions, classes and methods of a module, with their parameters."""
    return [line for node in ast.parse(source).body for line in _signatures(node)]


def _signatures(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_") or name == "__init__":
            yield f"{name}({ast.unparse(node.args)})"
        case ast.ClassDef(name=name) if not name.startswith("_"):
            yield f"{name}({', '.join(map(ast.unparse, node.bases))})"
            yield from (f"{name}.{line}" for member in node.body for line in _signatures(member))
        case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
            yield f"{name}: {ast.unparse(node.annotation)}"


def _last_full_run() -> str | None:
    """Return the commit of the last complete run, if it is in the history of this checkout."""
    if not _FULL.is_file():
        return None
    commit = _FULL.read_text(encoding="utf-8").strip()
    known = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT, capture_output=True, check=False)
    return commit if known.returncode == 0 else None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    chosen = SUITES.values() if sys.argv[1:] == ["--full"] else _changed_suites()
    print(*(path for suite in chosen for path in suite.tests))
