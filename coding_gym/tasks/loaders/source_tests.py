"""Rows whose tests are source code: BigCodeBench, ClassEval, and generic rows with a prompt and tests."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from coding_gym.tasks.loaders.calls import site_imports
from coding_gym.tasks.loaders.combined_tests import combined
from coding_gym.tasks.loaders.row_tests import TESTS, RowTests, row_setup, row_tests
from coding_gym.tasks.loaders.rows import EntryPoint, RowError, TaskRow, is_list
from coding_gym.tasks.loaders.split_tests import definitions, unit_tests, uses
from coding_gym.tasks.submission import preamble
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Programs

__all__ = ["PROMPTS", "big_code_bench_task", "class_eval_task", "plain_task"]

PROMPTS = ("prompt", "question", "problem", "description", "instruction", "text", "query", "question_content")
"""Columns of prompts."""
_DESCRIPTIONS = "test_info"


def big_code_bench_task(row: TaskRow) -> Task:
    """Return the task of a row of BigCodeBench, as published or of its annotation file.

    The fields are ``complete_prompt``, ``instruct_prompt``, ``code_prompt``, ``canonical_solution``, ``test``,
    ``entry_point`` and ``libs``. The annotation file names the first three ``prompt``, ``instruction`` and ``prompt_wo_doc``.
    With the option ``instruct``, the prompt is the one for chat models. In either case, completions continue the complete
    prompt, and its imports precede programs and tests.

    Raises:
        RowError: If the row is not in this format.
    """
    complete, entry_point = row.text("complete_prompt", "prompt"), row.text("entry_point")
    head = row.text("code_prompt", "prompt_wo_doc", default=complete)
    solution = row.text("canonical_solution", default="")
    return Task(
        id=row.id,
        prompt=row.text("instruct_prompt", "instruction") if row.options.instruct else complete,
        entry_point=entry_point,
        prefix=complete,
        tests=unit_tests(row.text("test"), preamble=preamble(complete, entry_point)),
        reference=head + solution if solution else None,
        limits=row.limits,
        metadata={**row.metadata(source="BigCodeBench"), "libs": _libraries(row)},
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
        limits=row.limits,
        metadata=row.metadata("class_description", source="ClassEval"),
    )


def plain_task(row: TaskRow) -> Task:
    """Return the task of a row with a prompt and columns of tests: source code, a list of asserts, or inputs and outputs.

    Raises:
        RowError: If the row is not in this format.
    """
    prompt, reference = row.text(*PROMPTS), row.solution
    documented = _documented(row)
    entry_point = row.entry_point or documented or _only_definition(reference or "")
    found = row_tests(row, entry_point=entry_point, skip=(_DESCRIPTIONS,) if documented is not None else ())
    if not found:
        message = f"there are no tests in {' or '.join(TESTS)}; {row.describe()}"
        raise RowError(message)
    called = next((part.target for part in found if part.target is not None), None)
    target = called or entry_point or _entry_point(found, reference or "")
    tests = combined([(part.column, part.tests) for part in found], setup=row_setup(row))
    starter = row.text("starter_code", default="")
    return Task(
        id=row.id,
        prompt=f"{prompt}\n\n{starter}" if starter else prompt,
        entry_point=target.name if target is not None and not isinstance(tests, Programs) else None,
        prefix=site_imports(called) if called is not None else "",
        tests=tests,
        reference=reference,
        limits=row.limits,
        metadata=row.metadata("difficulty", "tags", "url", "name", source="plain"),
    )


def _documented(row: TaskRow) -> EntryPoint | None:
    """Return the function that a list of descriptions names, as that of KodCode does."""
    described = row.decoded(_DESCRIPTIONS)
    first = next(iter(described), None) if is_list(described) else None
    name = first.get("function_name") if isinstance(first, Mapping) else None
    return EntryPoint(name) if isinstance(name, str) and name else None


def _only_definition(reference: str) -> EntryPoint | None:
    names = definitions(reference)
    return EntryPoint(names.pop()) if len(names) == 1 else None


def _entry_point(found: list[RowTests], reference: str) -> EntryPoint | None:
    """Return the first name defined by the solution that the tests use; None, for no required entry point, without one."""
    names = uses([text for part in found for text in part.sources], definitions(reference))
    return EntryPoint(names[0]) if names else None
