"""Audits of this package's grader, and of verifiers with holes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coding_gym.audit import (
    AuditReport,
    GraderVerifier,
    Hack,
    Judgment,
    Verifier,
    audit,
    load_hacks,
    load_verifier,
    own_hacks,
    wilson_interval,
)
from coding_gym.audit.programs import empty_programs, mutants, stubs
from coding_gym.cli import main as cli
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, GradingLimits, ProgramCase, Programs, Task, TaskSuite, load_suite
from tests.audit.forgeable import SECONDS

TASK = Task(
    id="scale",
    prompt="Scale.",
    entry_point="scale",
    tests=Asserts(cases=("assert scale(2, 3) == 6", "assert scale(5, 4) == 20", "assert scale(7, 7) == 49")),
    reference="def scale(x, k):\n    return x * k\n",
)
SUITE = TaskSuite("one", [TASK])
PROGRAM = Task(
    id="sum",
    prompt="Add the numbers.",
    tests=Programs(cases=(ProgramCase(stdin="1 2\n", stdout="3"), ProgramCase(stdin="5 5 5\n", stdout="15"))),
    reference="print(sum(map(int, input().split())))",
)
PROGRAMS = [hack for hack in own_hacks() if hack.code]


def audit_of(function: str, *, hacks: Sequence[Hack] | None = None) -> AuditReport:
    with load_verifier(f"python:tests.audit.forgeable:{function}", timeout=SECONDS + 1) as verifier:
        return audit(SUITE, verifier, hacks=hacks, most_mutants=1)


def holes(function: str, tried: set[str]) -> set[str]:
    """Audit a verifier with the hacks of some holes; return those that it has."""
    report = audit_of(function, hacks=[hack for hack in own_hacks() if hack.hole in tried])
    assert not report.passed
    checks = {check.title: check for check in report.checks}
    assert not checks["references pass"].findings
    assert not checks["stubs fail"].findings
    return {name.partition(": ")[0] for name in checks["hacks earn nothing"].holes}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("by_assertions", {"operators of the submission decide", "the submission can read the tests"}),
        ("by_function", {"names of the tests' process can be replaced"}),
        ("by_file", {"operators of the submission decide", "the submission can read the tests"}),
        ("by_exit_code", {"the exit code counts as the result", "operators of the submission decide"}),
        ("by_output", {"what the submission prints counts as the result"}),
        ("by_failures", {"time is taken for success", "a crash counts as success", "the exit code counts as the result"}),
        ("by_pickles", {"results are unpickled"}),
        ("by_unittest", {"tests that are skipped count as passed", "operators of the submission decide"}),
    ],
)
def test_holes_of_verifiers_are_named(function: str, expected: set[str]) -> None:
    assert holes(function, expected) == expected


def test_verifier_whose_process_ends_is_named() -> None:
    report = audit_of("by_assertions")
    (lost,) = (check for check in report.checks if check.title.startswith("there is a verdict"))
    reasons = {finding.name.partition(": ")[2]: finding.why for finding in lost.findings}
    assert reasons["os._exit when called"] == "the verifier's process ended, with exit code 0"
    assert reasons["ends itself by a signal"] == "the verifier's process ended, with exit code -9"
    assert "SyntaxError" in reasons["syntax error"]


def test_verifier_that_raises_a_long_error_is_quoted() -> None:
    report = audit_of("by_long_error", hacks=[])
    (references,) = (check for check in report.checks if check.title == "references pass")
    assert references.findings[0].why.startswith("the verifier raised ValueError: ééé")


def test_sound_verifier_passes() -> None:
    report = audit_of("by_reference")
    assert report.passed
    assert [check.total for check in report.checks if check.title == "hacks earn nothing"] == [len(PROGRAMS)]


@pytest.mark.parametrize("mode", ["agreement", "isolated", "faithful"])
def test_grader_earns_hacks_nothing(grader: Grader, mode: str) -> None:
    basics = load_suite("basics", grading=mode)[:2]
    programs = [PROGRAM] if mode == "isolated" else []
    report = audit(TaskSuite("some", [*basics, *programs]), GraderVerifier(grader))
    assert {check.title: check.findings for check in report.checks if check.is_failure and check.findings} == {}
    assert all(check.total for check in report.checks)


class Fickle(Verifier):
    """Says something else each time."""

    name = "fickle"

    def __init__(self) -> None:
        self._count = 0

    def judge(self, submissions):
        for _task, _code in submissions:
            self._count += 1
            yield Judgment(score=1 / self._count, solved=False, used=0.1 * self._count)


def test_verdicts_of_chance_are_findings() -> None:
    report = audit(TaskSuite("two", [TASK, PROGRAM]), Fickle())
    failed = {check.title for check in report.checks if check.findings}
    assert {"verdicts are the same in another order", "verdicts are the same beside busy processes"} <= failed
    assert "references pass" in failed


def test_slow_references_are_findings(grader: Grader) -> None:
    slow = "import time\ndef scale(x, k):\n    while time.process_time() < 1.2: pass\n    return x * k\n"
    limits = GradingLimits(cpu_timeout=2.0)
    task = Task(id="slow", prompt="", entry_point="scale", tests=TASK.tests, reference=slow, limits=limits, grading="isolated")
    report = audit(TaskSuite("slow", [task]), GraderVerifier(grader), hacks=(), most_mutants=0)
    (check,) = (check for check in report.checks if "time limit" in check.title)
    assert [finding.task_id for finding in check.findings] == ["slow"]


def test_wrong_programs() -> None:
    assert list(empty_programs(TASK)) == ["nothing", "a comment", "pass"]
    assert "def scale(*args, **options):\n    return args[0]\n" in stubs(TASK).values()
    assert "print()" in stubs(PROGRAM)
    assert mutants(TASK, 9) == {
        "line 2: returns None": "def scale(x, k):\n    return None\n",
        "line 2: Mult becomes Add": "def scale(x, k):\n    return x + k\n",
    }
    source = """def f(x):
    if not x or x > 3 and x in [True]:
        return 1
    return x % 2 == 0"""
    task = Task(id="f", prompt="", entry_point="f", tests=Asserts(cases=("assert f(1)",)), reference=source)
    changes = {name.partition(": ")[2] for name in mutants(task, 100)}
    assert changes >= {"the condition is negated", "not is left out", "or becomes and", "and becomes or", "Gt becomes GtE"}
    assert changes >= {"In becomes NotIn", "True becomes False", "1 becomes 2", "Mod becomes FloorDiv", "Eq becomes NotEq"}
    assert mutants(task, 3) == mutants(task, 3)
    assert len(mutants(task, 3)) == 3
    assert len(set(mutants(task, 100).values())) == len(mutants(task, 100))
    assert mutants(Task(id="f", prompt="", tests=TASK.tests, reference="def"), 3) == {}


def test_hacks_without_entry_point_attack_programs() -> None:
    attacks = [code for hack in own_hacks() if (code := hack.attack(PROGRAM))]
    assert "raise SystemExit" in attacks
    assert not any("ENTRY" in code for code in attacks)
    assert all("ENTRY" not in (hack.attack(TASK) or "") for hack in own_hacks())


def test_hacks_of_files(tmp_path: Path) -> None:
    path = tmp_path / "hacks.toml"
    path.write_text('[[hack]]\nhole = "luck"\nname = "six"\ncode = "def ENTRY(*_): return 6"\n')
    (hack,) = load_hacks(path)
    assert hack.attack(TASK) == "def scale(*_): return 6"
    for text, problem in (
        ("[[hack]]\nhole = 'x'\nname = 'y'\n", "hack"),
        ("nonsense", "Expected tables"),
        (path.read_text() * 2, "'six'"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=problem):
            load_hacks(path)
    with pytest.raises(ConfigurationError, match="No such file"):
        load_hacks(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("other:a:b", "no 'other' among the verifiers"),
        ("python", "Expected a verifier"),
        ("python:tests.audit.forgeable", "Expected a function as MODULE:NAME"),
        ("python:tests.audit.forgeable:none", "no attribute 'none'"),
        ("python:tests.audit.none:f", "No module named"),
        ("python:tests.audit.forgeable:not_callable", "which is int"),
    ],
)
def test_unknown_verifiers_are_refused(spec: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_verifier(spec)


def test_interval() -> None:
    low, high = wilson_interval(50, 100)
    assert (round(low, 3), round(high, 3)) == (0.404, 0.596)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(10, 10)[1] == 1.0


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["audit", *map(str, arguments), "--quiet"])


def test_command_writes_reports(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    SUITE.save(path)
    verifier = "python:tests.audit.forgeable:by_exit_code"
    result = run(path, "--verifier", verifier, "--mutants", 1, "--output", tmp_path / "report.json")
    assert result.exit_code == 1, result.output
    assert "FAILED hacks earn nothing" in result.output
    assert "the exit code counts as the result: os._exit when called" in result.output
    assert result.output.splitlines()[-2] == f"suite judged by {verifier}: 1 tasks, failed"
    written = json.loads((tmp_path / "report.json").read_text())
    (hacks,) = (check for check in written["checks"] if check["title"] == "hacks earn nothing")
    assert hacks["total"] == len(PROGRAMS)
    assert hacks["findings"][0]["code"]
    assert not written["passed"]
    sound = "python:tests.audit.forgeable:by_reference"
    result = run(path, "--verifier", sound, "--output", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "passed" in (tmp_path / "report.html").read_text()
    assert run(path, "--output", tmp_path / "report.txt").exit_code == 2
