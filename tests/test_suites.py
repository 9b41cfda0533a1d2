"""The table of suites agrees with what the tests and the products import."""

from __future__ import annotations

import pytest

from tests.support.suites import ROOT, SUITES, imported_files, suite_of

PATHS = [(name, path) for name, suite in SUITES.items() for path in (*suite.tests, *suite.product)]
SOURCES = [
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "coding_gym", "server_image", "plugins", "tests", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported_suites(path: str) -> set[str]:
    """Return the suites other than its own whose files a file imports."""
    suites = {suite_of(file) for file in imported_files(path)} - {suite_of(path)}
    return {suite.name for suite in suites if suite}


def test_paths_exist_and_belong_to_one_suite():
    core = [path for suite in SUITES.values() for path in suite.core]
    assert [path for path in [*core, *(path for _, path in PATHS)] if not (ROOT / path).exists()] == []
    nested = [(one, other) for one in PATHS for other in PATHS if one != other and f"{other[1]}/".startswith(f"{one[1]}/")]
    assert nested == []


def test_tests_of_the_core_import_no_suite():
    core = [path for path in SOURCES if path.startswith("tests/") and not suite_of(path)]
    wrong = {path: found for path in core if (found := imported_suites(path))}
    assert wrong == {}


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_suite_names_the_suites_that_it_uses(suite):
    found = {path: imported_suites(path) for path in SOURCES if suite_of(path) == suite}
    assert {path: names for path, names in found.items() if not names <= set(suite.uses)} == {}
    assert set().union(*found.values()) == set(suite.uses)
