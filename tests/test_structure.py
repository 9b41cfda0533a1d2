"""Structure of the source: no import cycles between files, no classes cut in two, no tests that read the clock."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [
    ROOT / "coding_gym",
    ROOT / "envs_registry",
    ROOT / "server_image" / "coding_gym_server",
    *sorted(ROOT.glob("plugins/*/coding_gym_*")),
]


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


def test_base_classes_have_several_heirs():
    """A class is read in one place: none exists only to be the base of one other."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for package in PACKAGES for path in package.rglob("*.py")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    heirs = Counter(name for node in classes for name in set(map(base_name, node.bases)))
    # What else a name is used for: it is made, checked for, or stands for a type.
    bases = {id(base) for node in classes for base in node.bases}
    used = {
        node.id if isinstance(node, ast.Name) else node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in bases
    }
    # Or it is imported by name.
    texts = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    used |= {text.rpartition(":")[2] for text in texts}
    found = {node.name for node in classes if heirs[node.name] == 1 and node.name not in used and not is_protocol(node)}
    assert found == set()


def test_server_works_in_threads_in_one_way():
    """Other ways let work outlive its task and its episode: it then reaches the files of the next one."""
    server = ROOT / "server_image" / "coding_gym_server" / "server"
    pattern = re.compile(r"to_thread|run_in_executor|run_in_threadpool|ThreadPoolExecutor|threading|anyio")
    found = {path.name for path in server.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))}
    # The last two empty directories that no session has yet, or has no longer.
    assert found == {"threads.py"}


def base_name(base: ast.expr) -> str:
    """Return the name of a base class, without its type arguments and its module."""
    name = base.value if isinstance(base, ast.Subscript) else base
    return ast.unparse(name).rpartition(".")[2]


def is_protocol(node: ast.ClassDef) -> bool:
    return any(base_name(base) in ("Protocol", "TypedDict") for base in node.bases)


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
