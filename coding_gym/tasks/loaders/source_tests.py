"""Rows whose tests are source code: BigCodeBench, ClassEval, and generic rows with a prompt and tests."""

from __future__ import annotations

from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.loaders.split_tests import definitions, tests_of_source, uses
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, UnitTests

__all__ = ["big_code_bench_task", "class_eval_task", "plain_task"]

_PROMPTS = ("prompt", "question", "problem", "description", "instruction", "text", "query")
_TESTS = ("test", "test_code", "tests", "test_list", "unit_tests")
_REFERENCES = ("reference", "canonical_solution", "solution", "solution_code", "code")


def big_code_bench_task(row: TaskRow) -> Task:
    """Return the task of a row of BigCodeBench: ``complete_prompt``, ``instruct_prompt``, ``test``, ``entry_point``.

    With the option ``instruct``, the prompt is the one for chat models. In either case, completions continue
    ``complete_prompt``.

    Raises:
        RowError: If the row is not in this format.
    """
    complete = row.text("complete_prompt")
    head = row.text("code_prompt", default=complete)
    solution = row.text("canonical_solution", default="")
    return Task(
        id=row.id,
        prompt=row.text("instruct_prompt") if row.options.instruct else complete,
        entry_point=row.text("entry_point"),
        prefix=complete,
        tests=UnitTests(source=row.text("test")),
        reference=head + solution if solution else None,
        limits=row.options.limits,
        metadata=row.metadata("libs", source="BigCodeBench"),
    )


def class_eval_task(row: TaskRow) -> Task:
    """Return the task of a row of ClassEval: the ``skeleton`` of a class to implement, and ``test`` with ``unittest`` classes.

    Raises:
        RowError: If the row is not in this format.
    """
    imports = "\n".join(row.texts("import_statement"))
    skeleton, solution = row.text("skeleton"), row.text("solution_code", default="")
    return Task(
        id=row.id,
        prompt=f"Write this class as its comments say:\n\n{skeleton}",
        entry_point=row.text("class_name"),
        prefix=f"{imports}\n" if imports else "",
        tests=UnitTests(source=f"{imports}\n{row.text('test')}"),
        reference=f"{imports}\n{solution}" if solution else None,
        limits=row.options.limits,
        metadata=row.metadata("class_description", source="ClassEval"),
    )


def plain_task(row: TaskRow) -> Task:
    """Return the task of a row with a prompt and tests: source code, or a list of asserts.

    Raises:
        RowError: If the row is not in this format.
    """
    prompt, reference = row.text(*_PROMPTS), row.text(*_REFERENCES, default="")
    tests = row.texts(*_TESTS)
    if not tests:
        message = f"there are no tests in {' or '.join(_TESTS)}; {row.describe()}"
        raise RowError(message)
    entry_point = row.text("entry_point", default="") or _entry_point(tests, reference)
    field = next(name for name in _TESTS if name in row)
    setup = row.text("test_setup_code", "setup", default="")
    return Task(
        id=row.id,
        prompt=prompt,
        entry_point=entry_point,
        tests=(
            tests_of_source(tests[0], entry_point=entry_point, setup=setup)
            if isinstance(row.fields.get(field), str) and len(tests) == 1
            else Asserts(setup=setup, cases=tuple(tests))
        ),
        reference=reference or None,
        limits=row.options.limits,
        metadata=row.metadata("difficulty", "tags", source="plain"),
    )


def _entry_point(tests: list[str], reference: str) -> str | None:
    """Return the first name defined by the solution that the tests use; None, for no required entry point, without one."""
    defined = definitions(reference)
    return next(iter(uses(tests, defined)), None) if defined else None
