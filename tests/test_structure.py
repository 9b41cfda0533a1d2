"""Structure of the source: no import cycles between files, no long files, no tests that read the clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [ROOT / "coding_gym", ROOT / "envs_registry", ROOT / "server_image" / "coding_gym_server"]
MOST_LINES = 400


def modules(package: Path) -> dict[str, Path]:
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, including deferred and type-checking-only imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_files_import_without_cycles(package):
    known = modules(package)
    graph = {name: {target for target in imports(path, known) if target in known} - {name} for name, path in known.items()}
    # static_order raises CycleError, which names the files.
    assert set(TopologicalSorter(graph).static_order()) == set(known)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_file_is_long(package):
    lengths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in modules(package).values()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


CLOCK = re.compile(r"\btime\.(monotonic|perf_counter|time)(_ns)?\b|loop(\(\))?\.time\b")


def reads_clock(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and CLOCK.search(ast.unparse(part.func)) for part in ast.walk(node))


def comparisons_of_time(text: str) -> set[int]:
    """Return the lines that compare readings of a clock, in expressions or in names of the same function."""
    found = set()
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for nodes in (list(ast.walk(function)) for function in functions):
        readings = {node.targets[0] for node in nodes if isinstance(node, ast.Assign) and reads_clock(node.value)}
        names = {name.id for target in readings for name in ast.walk(target) if isinstance(name, ast.Name)}
        for compared in (node for node in nodes if isinstance(node, ast.Compare)):
            uses = {node.id for node in ast.walk(compared) if isinstance(node, ast.Name)}
            if names & uses or reads_clock(compared):
                found.add(compared.lineno)
    return found


def test_tests_do_not_read_the_clock():
    tests = ROOT / "tests"
    paths = [path for path in tests.rglob("*.py") if path.name.startswith("test_") or path.name == "conftest.py"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (*paths, *tests.glob("support/*.py"))}
    del texts["tests/support/timing.py"]
    found = {name: comparisons_of_time(text) for name, text in texts.items() if CLOCK.search(text)}
    assert {name: lines for name, lines in found.items() if lines} == {}, "use promptly() and eventually()"
