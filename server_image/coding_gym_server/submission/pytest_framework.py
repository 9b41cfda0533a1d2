"""Runs the tests of a file as ``pytest`` does."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import pytest

from coding_gym_server.protocol.grading import CaseOutcome

__all__ = ["run_file", "warm_up"]


def run_file(path: Path, *, submission: Path, lines: int | None = None) -> dict[str, CaseOutcome]:
    """Run the tests of a file.

    Args:
        path: The file.
        submission: File of the submission, in which there are no tests.
        lines: Number of its lines, if tests follow them; None if it has no others.

    Returns:
        Outcomes by name: a class and a function, or a function. One that is run with several parameters has the first outcome
        that is not ``passed``, and a skipped one has passed.
    """
    plugin = _Plugin(str(submission.relative_to(path.parent)), lines)
    # The directories above it may not be readable.
    pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={path.parent}", str(path)], plugins=[plugin])
    return plugin.outcomes


def warm_up() -> None:
    """Run a test, so that processes that are forked later have imported what ``pytest`` and its plugins import."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "test_warm_up.py")
        path.write_text("def test(): pass\n")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={directory}", str(path)])
    # It depends on the environment of the process that uses it.
    tempfile.tempdir = None


class _Plugin:
    """Plugin that records outcomes.

    Args:
        submission: Relative path of the submission.
        lines: Number of its lines, if tests follow them; None if it has no others.

    Attributes:
        outcomes: Outcomes by name.
    """

    def __init__(self, submission: str, lines: int | None) -> None:
        self.outcomes: dict[str, CaseOutcome] = {}
        self._submission = submission
        self._lines = lines
        self._names: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not self._is_of_submission(*item.location)]
        self._names = {item.nodeid: _name(item) for item in items}

    def _is_of_submission(self, path: str, line: int | None, _: str) -> bool:
        return path == self._submission and (self._lines is None or (line or 0) < self._lines)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcomes[report.nodeid or "tests"] = CaseOutcome.ERROR

    @pytest.hookimpl
    def pytest_exception_interact(self, node: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if isinstance(node, pytest.Item):
            error = None if call.excinfo is None else call.excinfo.value
            is_failure = call.when == "call" and isinstance(error, AssertionError | pytest.fail.Exception)
            self._record(node.nodeid, CaseOutcome.FAILED if is_failure else CaseOutcome.ERROR)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that passes although it was expected to fail is a failure without an exception, if its mark is strict.
        self._record(report.nodeid, CaseOutcome.FAILED if report.failed else CaseOutcome.PASSED)

    def _record(self, nodeid: str, outcome: CaseOutcome) -> None:
        name = self._names[nodeid]
        if self.outcomes.get(name, CaseOutcome.PASSED) is CaseOutcome.PASSED:
            self.outcomes[name] = outcome


def _name(item: pytest.Item) -> str:
    kind = getattr(item, "cls", None)
    function = getattr(item, "originalname", None) or item.name
    return function if kind is None else f"{kind.__name__}.{function}"
