"""Rows whose tests are source code: BigCodeBench, ClassEval, and generic rows with a prompt and tests."""

from __future__ import annotations

import ast

from coding_gym.tasks.loaders.modes import suited_mode
from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.loaders.split_tests import definitions, tests_of_source, unit_tests, uses
from coding_gym.tasks.submission import preamble
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, GradingMode

__all__ = ["big_code_bench_task", "class_eval_task", "plain_task"]

_PROMPTS = ("prompt", "question", "problem", "description", "instruction", "text", "query")
_TESTS = ("test", "test_code", "tests", "test_list", "unit_tests")
_REFERENCES = ("reference", "canonical_solution", "solution", "solution_code", "code")


def big_code_bench_task(row: TaskRow) -> Task:
    """Return the task of a row of BigCodeBench, as published or of its annotation file.

    The fields are ``complete_prompt``, ``instruct_prompt``, ``code_prompt``, ``canonical_solution``, ``test``,
    ``entry_point`` and ``libs``. The annotation file names the first three ``prompt``, ``instruction`` and ``prompt_wo_doc``.
    With the option ``instruct``, the prompt is the one for chat models. In either case, completions continue the complete
    prompt, and its imports precede programs and tests. The mode is faithful if there is a solution.

    Raises:
        RowError: If the row is not in this format.
    """
    complete, entry_point = row.text("complete_prompt", "prompt"), row.text("entry_point")
    head = row.text("code_prompt", "prompt_wo_doc", default=complete)
    solution = row.text("canonical_solution", default="")
    mode = row.options.grading or (GradingMode.FAITHFUL if solution else GradingMode.ISOLATED)
    # In one process with the submission, which begins with the prompt, its imports and constants are defined already.
    setup = "" if mode == GradingMode.FAITHFUL else preamble(complete, entry_point)
    return Task(
        id=row.id,
        prompt=row.text("instruct_prompt", "instruction") if row.options.instruct else complete,
        entry_point=entry_point,
        prefix=complete,
        tests=unit_tests(row.text("test"), setup=setup),
        reference=head + solution if solution else None,
        limits=row.options.limits,
        metadata={**row.metadata(source="BigCodeBench"), "libs": _libraries(row)},
        grading=mode,
    )


def _libraries(row: TaskRow) -> list[str]:
    """Return the libraries of a row of BigCodeBench, which it publishes as a list in the syntax of Python."""
    libraries = row.fields.get("libs", [])
    if isinstance(libraries, str):
        try:
            libraries = ast.literal_eval(libraries)
        except (SyntaxError, ValueError):
            libraries = [libraries]
    return [str(name) for name in libraries]


def class_eval_task(row: TaskRow) -> Task:
    """Return the task of a row of ClassEval: the ``skeleton`` of a class to implement, and ``test`` with ``unittest`` classes.

    Raises:
        RowError: If the row is not in this format.
    """
    imports = "\n".join(row.texts("import_statement"))
    skeleton, solution = row.text("skeleton"), row.text("solution_code", default="")
    tests, reference = unit_tests(row.text("test"), setup=imports), f"{imports}\n{solution}" if solution else None
    return Task(
        id=row.id,
        prompt=f"Write this class as its comments say:\n\n{skeleton}",
        entry_point=row.text("class_name"),
        prefix=f"{imports}\n" if imports else "",
        tests=tests,
        reference=reference,
        limits=row.options.limits,
        metadata=row.metadata("class_description", source="ClassEval"),
        grading=suited_mode(tests, reference=reference),
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
    is_source = isinstance(row.fields.get(field), str) and len(tests) == 1
    wanted = (
        tests_of_source(tests[0], entry_point=entry_point, setup=setup)
        if is_source
        else Asserts(setup=setup, cases=tuple(tests))
    )
    return Task(
        id=row.id,
        prompt=prompt,
        entry_point=entry_point,
        tests=wanted,
        reference=reference or None,
        limits=row.options.limits,
        metadata=row.metadata("difficulty", "tags", source="plain"),
        grading=suited_mode(wanted, reference=reference or None),
    )


def _entry_point(tests: list[str], reference: str) -> str | None:
    """Return the first name defined by the solution that the tests use; None, for no required entry point, without one."""
    defined = definitions(reference)
    return next(iter(uses(tests, defined)), None) if defined else None
