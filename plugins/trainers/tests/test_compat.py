"""``coding-gym compat`` says what was tested, and its data are what the repository has."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym_trainers.compat import Framework, TestResult, compatibility, frameworks, markdown_table, read_results
from plugins.trainers.tests.compat import CompatRecorder, record

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "plugins" / "trainers" / "docs" / "works-with.md"
RESULT = TestResult(version="1.2", python="3.11", passed=3, failed=0, skipped=1)


class Report:
    def __init__(self, nodeid, outcome, when="call"):
        self.nodeid, self.outcome, self.when = nodeid, outcome, when
        self.failed = outcome == "failed"


def run(*arguments):
    return CliRunner().invoke(app, ["compat", *arguments])


FIRST = frameworks()[0]
SAMPLE = Framework(name="Sample", library="pytest", change="", section="", tests=("tests/sample", "tests/test_sample.py"))


def test_table_of_page_agrees_with_data():
    table = markdown_table(compatibility())
    assert table in PAGE.read_text(encoding="utf-8"), "run: coding-gym compat --markdown"
    assert run("--markdown").output == table


def test_data_name_existing_tests_and_sections():
    page = PAGE.read_text(encoding="utf-8")
    for framework in frameworks():
        assert f"{{ #{framework.section} }}" in page
        assert all((ROOT / name).exists() for name in framework.tests)
    assert set(read_results()) <= {framework.name for framework in frameworks()}
    assert read_results()


def test_published_results_have_no_failures():
    assert {name: result.failed for name, result in read_results().items() if result.failed} == {}


def test_table_shows_each_framework():
    shown = run()
    assert shown.exit_code == 0
    assert all(framework.name in shown.output for framework in frameworks())


def test_json_has_versions_and_counts():
    entries = {entry["name"]: entry for entry in json.loads(run("--json").output)}
    assert set(entries) == {each.name for each in frameworks()}
    assert all(entries[row.framework.name] == row.as_dict() for row in compatibility())
    assert SAMPLE.installed == metadata.version("pytest")


def test_results_of_another_run_are_shown(tmp_path):
    path = tmp_path / "results.json"
    record(path, {FIRST.name: RESULT})
    shown = run("--results", str(path), "--markdown")
    assert f"{FIRST.library} 1.2, Python 3.11" in shown.output
    assert "3 passed, 1 skipped" in shown.output
    # Nothing is shown for the others, which did not run.
    assert shown.output.count("passed") == 1


def test_failure_is_the_exit_code(tmp_path):
    path = tmp_path / "results.json"
    record(path, {FIRST.name: TestResult(version="1.2", python="3.11", passed=0, failed=1, skipped=0)})
    shown = run("--results", str(path))
    assert shown.exit_code == 1
    assert "0 passed, 1 failed" in shown.output


@pytest.mark.parametrize("text", ["", "[]", "{", '{"TRL": {"version": "1"}}', '{"TRL": 1}'])
def test_malformed_results_are_refused(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    shown = run("--results", str(path))
    assert shown.exit_code == 1
    assert "results of tests" in shown.output.replace("\n", " ")


def test_recorder_counts_outcomes_of_frameworks(tmp_path):
    path = tmp_path / "results.json"
    record(path, {"Other": RESULT})
    recorder = CompatRecorder(path, (SAMPLE, FIRST))
    test = "tests/sample/test_it.py::test"
    for report in (
        *(Report(test, "passed", when) for when in ("setup", "call", "teardown")),
        Report(f"{test}[skipped]", "skipped", "setup"),
        Report(f"{test}[broken]", "failed", "setup"),
        Report(f"{test}[late]", "passed"),
        Report(f"{test}[late]", "failed", "teardown"),
        Report("tests/test_sample.py::test", "passed"),
        Report("tests/sample_of_another.py::test", "failed"),
    ):
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    results = read_results(path)
    assert set(results) == {"Other", "Sample"}
    assert results["Other"] == RESULT
    found = results["Sample"]
    assert (found.passed, found.failed, found.skipped) == (2, 2, 1)
    assert found.version == metadata.version("pytest")


def test_run_without_tests_records_nothing(tmp_path):
    path = tmp_path / "results.json"
    recorder = CompatRecorder(path, (SAMPLE,))
    recorder.pytest_runtest_logreport(Report("tests/test_sample.py::test", "skipped", "setup"))
    recorder.pytest_sessionfinish()
    assert not path.exists()
