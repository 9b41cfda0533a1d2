"""Structure of the source: no import cycles between files, no long files."""

from __future__ import annotations

import ast
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
