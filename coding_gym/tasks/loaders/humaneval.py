"""HumanEval (Chen et al. 2021), and data sets with the same fields: EvalPlus, mxeval."""

from __future__ import annotations

from typing import Any

from coding_gym.tasks.loaders.rows import EntryPoint, RowError, TaskRow, literal
from coding_gym.tasks.loaders.split_tests import tests_of_source
from coding_gym.tasks.submission import preamble
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts

__all__ = ["evalplus_task", "humaneval_task"]

_SAME = """\
def _same(got, expected, atol):
    import math
    if isinstance(expected, float) or isinstance(expected, (list, tuple)) and expected and isinstance(expected[0], float):
        atol = atol or 1e-6
    if atol and isinstance(got, (int, float)) and isinstance(expected, (int, float)):
        return got == expected or math.isclose(got, expected, rel_tol=1e-7, abs_tol=atol)
    if atol and isinstance(got, (list, tuple)) and type(got) is type(expected):
        return len(got) == len(expected) and all(_same(*pair, atol) for pair in zip(got, expected))
    return got == expected
"""
"""EvalPlus' comparison: floats as in numpy's ``allclose``, everything else exactly."""


def humaneval_task(row: TaskRow) -> Task:
    """Return the task of a row with ``prompt``, ``entry_point``, ``test`` and ``canonical_solution``.

    In LeetCodeDataset, the entry point is a method, ``prompt`` is the code before the solution, and ``query`` the question.

    Raises:
        RowError: If the row is not in this format.
    """
    language = row.text("language", default="python")
    if language.lower() not in ("python", "py", "python3"):
        message = f"it is written in {language}; only Python is graded"
        raise RowError(message)
    prompt, target = row.text("prompt"), EntryPoint(row.text("entry_point").strip())
    # Tests may also use what the prompt defines.
    begin = preamble(prompt, target.name)
    tests = tests_of_source(row.text("test"), entry_point=target.expression, setup="", preamble=begin)
    return Task(
        id=row.id,
        prompt=row.text("query", default=prompt),
        entry_point=target.name,
        prefix=prompt,
        tests=tests,
        reference=_reference(row, prompt),
        limits=row.limits,
        metadata=row.metadata("language", source="HumanEval"),
    )


def evalplus_task(row: TaskRow) -> Task:
    """Return the task of a row of EvalPlus' own files: inputs, and a solution that computes the expected outputs.

    Raises:
        RowError: If the row is not in this format.
    """
    prompt, entry_point = row.text("prompt"), row.text("entry_point")
    solution = _reference(row, prompt)
    if solution is None:
        message = "base_input requires canonical_solution, which computes the expected outputs"
        raise RowError(message)
    atol = row.fields.get("atol") or 0
    # The reference solution runs in its own namespace: the namespace of the tests also holds the submission's names.
    setup = (
        f"from copy import deepcopy as _deepcopy\n{_SAME}_reference = {{'__name__': 'reference'}}\n"
        f"exec({solution!r}, _reference)\n_reference = _reference[{entry_point!r}]"
    )
    inputs = [*_inputs(row, "base_input"), *_inputs(row, "plus_input")]
    if not inputs:
        message = "expected inputs in base_input or plus_input, got none"
        raise RowError(message)
    return Task(
        id=row.id,
        prompt=prompt,
        entry_point=entry_point,
        prefix=prompt,
        tests=Asserts(setup=setup, cases=tuple(_comparison(entry_point, arguments, atol) for arguments in inputs)),
        reference=solution,
        limits=row.limits,
        metadata=row.metadata("contract", source="EvalPlus"),
    )


def _reference(row: TaskRow, prompt: str) -> str | None:
    solution = row.text("canonical_solution", "completion", default="")
    return prompt + solution if solution else row.solution


def _inputs(row: TaskRow, name: str) -> list[Any]:
    inputs = row.decoded(name)
    # MBPP+ has some inputs as empty objects rather than lists.
    return list(inputs) if inputs else []


def _comparison(entry_point: str, arguments: Any, atol: float) -> str:
    values = ", ".join(literal(value) for value in arguments)
    got, expected = (f"{function}(*_deepcopy(_arguments))" for function in (entry_point, "_reference"))
    return f"_arguments = [{values}]\nassert _same({got}, {expected}, {atol!r})"
