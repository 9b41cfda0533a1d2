"""Row formats of data sets, detected by their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.competitions import apps_task, code_contests_task, live_code_bench_task, pairs_task
from coding_gym.tasks.loaders.ds1000 import ds1000_task
from coding_gym.tasks.loaders.humaneval import evalplus_task, humaneval_task
from coding_gym.tasks.loaders.mbpp import mbpp_task
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.rows import LoadOptions, RowError, TaskRow, is_list
from coding_gym.tasks.loaders.source_tests import big_code_bench_task, class_eval_task, plain_task
from coding_gym.tasks.task import Task

__all__ = ["TaskFormat", "find_format", "tasks_of_rows"]


@dataclass(frozen=True)
class TaskFormat:
    """A row format.

    Attributes:
        name: Name of the data set or format.
        fields: Required fields; names separated by ``|`` are alternatives.
        task: Converts a row to a task.
        fits: Further condition on a row.
    """

    name: str
    fields: tuple[str, ...]
    task: Callable[[TaskRow], Task]
    fits: Callable[[TaskRow], bool] = lambda _: True

    def is_of(self, row: TaskRow) -> bool:
        """Return whether a row matches this format."""
        return all(any(name in row for name in field.split("|")) for field in self.fields) and self.fits(row)


def _has_pairs(row: TaskRow) -> bool:
    if "inputs" in row and "outputs" in row:
        return True
    tests = row.decoded("tests" if "tests" in row else "test_cases")
    return is_list(tests) and all(isinstance(test, Mapping) for test in tests)


_PROMPT = "prompt|question|problem|description|instruction|text|query"

_FORMATS = (
    TaskFormat("coding_gym", ("id", "prompt", "tests"), lambda row: Task.from_row(row.fields), lambda row: _is_own(row)),
    TaskFormat("EvalPlus", ("prompt", "entry_point", "base_input"), evalplus_task),
    TaskFormat("BigCodeBench", ("complete_prompt|prompt_wo_doc", "entry_point", "test"), big_code_bench_task),
    TaskFormat("DS-1000", ("prompt", "code_context"), ds1000_task),
    TaskFormat("ClassEval", ("skeleton", "class_name", "test"), class_eval_task),
    TaskFormat("HumanEval", ("prompt", "entry_point", "test"), humaneval_task),
    TaskFormat(
        "LiveCodeBench", ("question_content|question|prompt", "public_test_cases|private_test_cases"), live_code_bench_task
    ),
    TaskFormat("APPS", ("input_output",), apps_task),
    TaskFormat("CodeContests", ("description|prompt", "public_tests|private_tests|generated_tests"), code_contests_task),
    TaskFormat("MBPP", ("text|prompt", "code", "test_list"), mbpp_task),
    TaskFormat("pairs of input and output", (_PROMPT, "inputs|tests|test_cases"), pairs_task, _has_pairs),
    TaskFormat("a prompt with tests", (_PROMPT, "test|test_code|tests|test_list|unit_tests"), plain_task),
)
"""The formats in order of matching: those with more fields precede those with a subset of them."""


def find_format(row: TaskRow) -> TaskFormat:
    """Return the format of a row.

    Raises:
        RowError: If no format matches.
    """
    for known in _FORMATS:
        if known.is_of(row):
            return known
    names = ", ".join(known.name for known in _FORMATS)
    message = f"no known format has these fields; {row.describe()}. Known are {names}: docs/tasks.md lists their fields"
    raise RowError(message)


def tasks_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], *, source: str, options: LoadOptions) -> Iterator[Task]:
    """Convert rows to tasks.

    Args:
        rows: Pairs of the location of a row, for error messages, and its fields.
        source: Name from which the ids of rows without an id are derived: ``source/number``.
        options: Loader options.

    Raises:
        ConfigurationError: If a row is not a task; the message gives its location and the reason.
    """
    for number, (where, fields) in enumerate(rows):
        row = TaskRow(fields, number=number, source=source, options=options)
        try:
            yield with_grading(find_format(row).task(row), options.grading)
        except ConfigurationError as error:
            message = f"{where}: {error}"
            raise ConfigurationError(message) from error


def _is_own(row: TaskRow) -> bool:
    tests = row.fields["tests"]
    return isinstance(tests, Mapping) and "type" in tests
