"""Records the results of the tests of frameworks, for ``coding-gym compat``.

``CODING_GYM_COMPAT`` names the file to add them to::

    CODING_GYM_COMPAT=plugins/trainers/coding_gym_trainers/compat.json pytest --full plugins/trainers/tests/isolated/skyrl.py

It replaces the results of the frameworks whose tests have run, and leaves the others. Tests in their own environments
(``tests/support/isolated.py``) record theirs there, with the versions that those have.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest

from coding_gym_trainers.compat import Framework, TestResult, frameworks, read_results

__all__ = ["CompatRecorder", "record"]


class CompatRecorder:
    """Plugin of pytest that counts the results of a run.

    Args:
        path: File to add them to.
        known: The frameworks.
    """

    def __init__(self, path: Path, known: Iterable[Framework]) -> None:
        self._path = path
        self._frameworks = tuple(known)
        self._outcomes: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for framework in self._frameworks:
            if framework.has_test(report.nodeid):
                outcomes = self._outcomes.setdefault(framework.name, {})
                # A failure in any phase, and otherwise the outcome of the last one but the teardown.
                if report.failed or (report.when != "teardown" and outcomes.get(report.nodeid) != "failed"):
                    outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        found = {}
        for framework in self._frameworks:
            counts = Counter(self._outcomes.get(framework.name, {}).values())
            if result := _result_of(framework, counts):
                found[framework.name] = result
        if found:
            record(self._path, found)


def record(path: Path, results: dict[str, TestResult]) -> None:
    """Add results to a file, which several processes may do at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = read_results(path) if path.stat().st_size else {}
        known.update(results)
        file.truncate(0)
        file.write(json.dumps({name: asdict(known[name]) for name in sorted(known)}, indent=2) + "\n")


def _result_of(framework: Framework, counts: Counter[str]) -> TestResult | None:
    """Return the result; None if the library is not installed or no test has run."""
    if framework.installed is None or not counts["passed"] + counts["failed"]:
        return None
    return TestResult(
        version=framework.installed,
        python=".".join(platform.python_version_tuple()[:2]),
        passed=counts["passed"],
        failed=counts["failed"],
        skipped=counts["skipped"],
    )


def pytest_configure(config: pytest.Config) -> None:
    # Processes of xdist report to the one that started them.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        path = Path(os.environ["CODING_GYM_COMPAT"]).absolute()
        config.pluginmanager.register(CompatRecorder(path, frameworks()), "compat")
