"""Row formats of data sets, detected by their fields."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.codeforces import codeforces_task
from coding_gym.tasks.loaders.competitions import (
    apps_task,
    code_contests_plus_task,
    code_contests_task,
    live_code_bench_task,
)
from coding_gym.tasks.loaders.ds1000 import ds1000_task
from coding_gym.tasks.loaders.humaneval import evalplus_task, humaneval_task
from coding_gym.tasks.loaders.mbpp import mbpp_task
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.polyglot import humaneval_x_task, is_humaneval_x, multipl_e_task
from coding_gym.tasks.loaders.r2e_gym import r2e_gym_task
from coding_gym.tasks.loaders.repositories import swe_bench_task
from coding_gym.tasks.loaders.row_tests import TESTS, with_other_tests
from coding_gym.tasks.loaders.rows import LoadOptions, RowError, TaskRow
from coding_gym.tasks.loaders.source_tests import PROMPTS, big_code_bench_task, class_eval_task, plain_task
from coding_gym.tasks.loaders.split_tests import with_module
from coding_gym.tasks.loaders.swe_smith import swe_smith_task
from coding_gym.tasks.task import Task

__all__ = ["TaskFormat", "find_format", "tasks_of_rows"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskFormat:
    """A row format.

    Attributes:
        name: Name of the data set or format.
        fields: Required fields; names separated by ``|`` are alternatives.
        task: Converts a row to a task.
        tests: Columns of tests, and of code that runs before them, that the conversion reads; the others are added.
            None if it reads all.
        fits: Further condition on a row.
    """

    name: str
    fields: tuple[str, ...]
    task: Callable[[TaskRow], Task]
    tests: tuple[str, ...] | None = ()
    fits: Callable[[TaskRow], bool] = lambda _: True

    def is_of(self, row: TaskRow) -> bool:
        """Return whether a row matches this format."""
        return all(any(name in row for name in field.split("|")) for field in self.fields) and self.fits(row)


_FORMATS = (
    TaskFormat("coding_gym", ("id", "prompt", "tests"), lambda row: Task.from_row(row.fields), None, lambda row: _is_own(row)),
    TaskFormat(
        "SWE-bench", ("problem_statement", "FAIL_TO_PASS|fail_to_pass", "test_patch", "instance_id"), swe_bench_task, None
    ),
    TaskFormat("R2E-Gym", ("docker_image", "expected_output_json", "problem_statement"), r2e_gym_task, None),
    TaskFormat(
        "SWE-smith",
        ("problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS", "patch", "instance_id", "image_name"),
        swe_smith_task,
        None,
        lambda row: "swesmith" in f"{row.fields['image_name']} {row.fields.get('repo')}",
    ),
    TaskFormat("EvalPlus", ("prompt", "entry_point", "base_input"), evalplus_task),
    TaskFormat("BigCodeBench", ("complete_prompt|prompt_wo_doc", "entry_point", "test"), big_code_bench_task, ("test",)),
    TaskFormat("MultiPL-E", ("prompt", "language", "tests", "stop_tokens"), multipl_e_task, ("tests", "test", "doctests")),
    TaskFormat(
        "HumanEval-X",
        ("task_id", "prompt", "declaration", "test"),
        humaneval_x_task,
        ("test", "example_test", "test_setup"),
        is_humaneval_x,
    ),
    TaskFormat("DS-1000", ("prompt", "code_context"), ds1000_task),
    TaskFormat("ClassEval", ("skeleton", "class_name", "test"), class_eval_task, ("test", "test_classes")),
    TaskFormat("HumanEval", ("prompt", "entry_point", "test"), humaneval_task, ("test",)),
    TaskFormat(
        "LiveCodeBench",
        ("question_content|question|prompt", "public_test_cases|private_test_cases"),
        live_code_bench_task,
        ("public_test_cases", "private_test_cases"),
    ),
    TaskFormat("APPS", ("input_output",), apps_task),
    TaskFormat(
        "Codeforces",
        ("description", "official_tests", "input_format|input_mode"),
        codeforces_task,
        ("official_tests", "official_tests_complete", "generated_tests", "testset_size"),
    ),
    TaskFormat(
        "CodeContests+",
        ("description", "checker", "correct_submissions|test_cases", "validator|generator|generator_cmd"),
        code_contests_plus_task,
        ("test_cases",),
    ),
    TaskFormat(
        "CodeContests",
        ("description|prompt", "public_tests|private_tests|generated_tests"),
        code_contests_task,
        ("public_tests", "private_tests", "generated_tests"),
    ),
    TaskFormat(
        "MBPP",
        ("text|prompt", "code", "test_list"),
        mbpp_task,
        ("test_list", "challenge_test_list", "test_imports", "test_setup_code"),
    ),
    TaskFormat("a prompt with tests", ("|".join(PROMPTS), "|".join(("inputs", *TESTS))), plain_task, None),
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
        ConfigurationError: If a row is not a task, and is not to be skipped; the message gives its location and the reason.
    """
    for number, (where, fields) in enumerate(rows):
        row = TaskRow(fields, number=number, source=source, options=options)
        try:
            known = find_format(row)
            task = known.task(row)
            if known.tests is not None:
                task = with_other_tests(task, row, read=known.tests)
            yield with_grading(with_module(task), options.grading)
        except ConfigurationError as error:
            if options.unsupported == "skip":
                _log.warning("skipped: %s: %s", where, error)
                continue
            message = f"{where}: {error}"
            raise ConfigurationError(message) from error


def _is_own(row: TaskRow) -> bool:
    tests = row.fields["tests"]
    return isinstance(tests, Mapping) and "type" in tests
