"""Frameworks that this package works with, and the results of their tests. This module imports none of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError

__all__ = [
    "Compatibility",
    "Framework",
    "TestResult",
    "compatibility",
    "frameworks",
    "markdown_table",
    "read_results",
]

_FRAMEWORKS = Path(__file__).with_name("compat.toml")
_RESULTS = Path(__file__).with_name("compat.json")


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework that this package works with.

    Attributes:
        name: Its name.
        library: Name of the distribution whose version is tested.
        change: What its users change, as Markdown.
        section: Anchor of its section in ``plugins/trainers/docs/works-with.md``.
        tests: Files and directories of the tests, relative to the root of the repository.
    """

    name: str
    library: str
    change: str
    section: str
    tests: tuple[str, ...]

    @property
    def installed(self) -> str | None:
        """Version that is installed here; None if it is not."""
        try:
            return metadata.version(self.library)
        except metadata.PackageNotFoundError:
            return None

    def has_test(self, nodeid: str) -> bool:
        """Return whether a test, named by its id in pytest, is one of this framework's."""
        path = nodeid.partition("::")[0]
        return any(path == name or path.startswith(f"{name}/") for name in self.tests)


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """Result of the tests of a framework.

    Attributes:
        version: Version of the library that they ran with.
        python: Version of Python that they ran with.
        passed: Number of tests that passed.
        failed: Number of tests that failed.
        skipped: Number of tests that were skipped.
    """

    __test__ = False

    version: str
    python: str
    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        counts = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}
        return ", ".join(f"{number} {name}" for name, number in counts.items() if number or name == "passed")


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """A framework with the result of its tests' last run; None if there is none."""

    framework: Framework
    result: TestResult | None

    def as_dict(self) -> dict[str, Any]:
        """Return a form that JSON can represent."""
        framework = {**asdict(self.framework), "tests": list(self.framework.tests)}
        result = None if self.result is None else asdict(self.result)
        return {**framework, "installed": self.framework.installed, "result": result}


def frameworks() -> tuple[Framework, ...]:
    """Return all frameworks."""
    entries = tomllib.loads(_FRAMEWORKS.read_text(encoding="utf-8"))["framework"]
    return tuple(Framework(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries)


def read_results(path: Path | None = None) -> dict[str, TestResult]:
    """Return results by the names of frameworks.

    Args:
        path: File that the tests of this repository write; None for the results that this release was published with.

    Raises:
        ConfigurationError: If it is not such a file.
    """
    path = _RESULTS if path is None else path
    try:
        entries: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {name: TestResult(**entry) for name, entry in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        message = f"Expected {path} to have results of tests, as plugins/trainers/tests/compat.py writes them: {error}"
        raise ConfigurationError(message) from error


def compatibility(path: Path | None = None) -> tuple[Compatibility, ...]:
    """Return all frameworks with their results.

    Args:
        path: As for ``read_results``.

    Raises:
        ConfigurationError: If it is not a file of results.
    """
    known = read_results(path)
    return tuple(Compatibility(framework=each, result=known.get(each.name)) for each in frameworks())


def markdown_table(rows: Iterable[Compatibility]) -> str:
    """Return the table of ``plugins/trainers/docs/works-with.md``."""
    lines = [_line(("framework", "tested with", "what you change", "tests", "last run")), _line(["---"] * 5)]
    for row in rows:
        framework, result = row.framework, row.result
        lines.append(
            _line(
                (
                    f"[{framework.name}](#{framework.section})",
                    "-" if result is None else f"{framework.library} {result.version}, Python {result.python}",
                    framework.change,
                    ", ".join(f"`{name}`" for name in framework.tests),
                    "-" if result is None else str(result),
                )
            )
        )
    return "".join(f"{line}\n" for line in lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
