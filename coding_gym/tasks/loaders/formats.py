"""The formats of rows, told apart by their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.competitions import apps_task, code_contests_task, live_code_bench_task, pairs_task
from coding_gym.tasks.loaders.fields import LoadOptions, Row, RowError, is_list
from coding_gym.tasks.loaders.humaneval import evalplus_task, humaneval_task
from coding_gym.tasks.loaders.mbpp import mbpp_task
from coding_gym.tasks.loaders.sources import big_code_bench_task, class_eval_task, plain_task
from coding_gym.tasks.task import Task

__all__ = ["Format", "find_format", "tasks_of_rows"]


@dataclass(frozen=True)
class Format:
    """A format of rows.

    Attributes:
        name: Whose it is.
        fields: What a row of it has; names in one string, separated by ``|``, are alternatives.
        task: Makes a task of a row.
        fits: What else is true of a row of it.
    """

    name: str
    fields: tuple[str, ...]
    task: Callable[[Row], Task]
    fits: Callable[[Row], bool] = lambda _: True

    def is_of(self, row: Row) -> bool:
        """Say whether a row looks like one of this format."""
        return all(any(name in row for name in field.split("|")) for field in self.fields) and self.fits(row)


def _has_pairs(row: Row) -> bool:
    if "inputs" in row and "outputs" in row:
        return True
    tests = row.decoded("tests" if "tests" in row else "test_cases")
    return is_list(tests) and all(isinstance(test, Mapping) for test in tests)


_PROMPT = "prompt|question|problem|description|instruction|text|query"

_FORMATS = (
    Format("coding_gym", ("id", "prompt", "tests"), lambda row: Task.from_row(row.fields), lambda row: _is_own(row)),
    Format("EvalPlus", ("prompt", "entry_point", "base_input"), evalplus_task),
    Format("BigCodeBench", ("complete_prompt", "entry_point", "test"), big_code_bench_task),
    Format("ClassEval", ("skeleton", "class_name", "test"), class_eval_task),
    Format("HumanEval", ("prompt", "entry_point", "test"), humaneval_task),
    Format("LiveCodeBench", ("question_content|question|prompt", "public_test_cases|private_test_cases"), live_code_bench_task),
    Format("APPS", ("input_output",), apps_task),
    Format("CodeContests", ("description|prompt", "public_tests|private_tests|generated_tests"), code_contests_task),
    Format("MBPP", ("text|prompt", "code", "test_list"), mbpp_task),
    Format("pairs of input and output", (_PROMPT, "inputs|tests|test_cases"), pairs_task, _has_pairs),
    Format("a prompt with tests", (_PROMPT, "test|test_code|tests|test_list|unit_tests"), plain_task),
)
"""The formats, those with more fields before those that have some of them."""


def find_format(row: Row) -> Format:
    """Return the format of a row.

    Raises:
        RowError: It is of none.
    """
    for known in _FORMATS:
        if known.is_of(row):
            return known
    names = ", ".join(known.name for known in _FORMATS)
    message = f"no known format has such fields; {row.describe()}. Known are {names}: docs/tasks.md says what fields they have"
    raise RowError(message)


def tasks_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], *, source: str, options: LoadOptions) -> Iterator[Task]:
    """Return the tasks of rows.

    Args:
        rows: Each with where it is.
        source: What tasks without an id are called: ``source/number``.
        options: What the loader was told.

    Raises:
        ConfigurationError: A row is no task: where it is, and why.
    """
    for number, (where, fields) in enumerate(rows):
        row = Row(fields, number=number, source=source, options=options)
        try:
            yield find_format(row).task(row)
        except ConfigurationError as error:
            message = f"{where}: {error}"
            raise ConfigurationError(message) from error


def _is_own(row: Row) -> bool:
    tests = row.fields["tests"]
    return isinstance(tests, Mapping) and "type" in tests
