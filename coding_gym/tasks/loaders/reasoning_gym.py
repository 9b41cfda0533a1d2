"""Loader of the code problems of the package ``reasoning-gym``.

Its CodeI/O data has functions, written and described by a language model, and generators of their inputs. The package itself
executes them in the process that loads them; here they run with the tests, in a sandbox.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_gym._validation import hint
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.submission import parse
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, GradingLimits, GradingMode, ProgramCase, Programs

__all__ = ["load_reasoning_gym"]

_FUNCTION = "main_solution"
_INVERSE = "find_inputs"

_PROGRAMS = (
    "base_conversion",
    "bf",
    "binary_matrix",
    "count_bits",
    "count_primes",
    "gcd",
    "isomorphic_strings",
    "lcm",
    "letter_counting",
    "rotate_matrix",
    "rotten_oranges",
    "spiral_matrix",
    "string_insertion",
    "string_manipulation",
    "string_splitting",
)
"""Data sets whose questions a program can solve, and whose single answer has a form that the question specifies."""

_SETUP = """\
import copy as _copy, math as _math, random as _random
_reference = {{"__name__": "reference", "Random": _random.Random}}
exec({code!r}, _reference)
exec({generator!r}, _reference)
_generate = _reference.get("generate_inputs") or _reference["generate_input"]
_solve = _reference["main_solution"]
def _same(got, expected):
    if isinstance(got, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(map(_same, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(_same(got[key], expected[key]) for key in expected)
    if isinstance(got, float) or isinstance(expected, float):
        numbers = isinstance(got, (int, float)) and isinstance(expected, (int, float))
        both_nan = numbers and got != got and expected != expected
        return numbers and (both_nan or _math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-9))
    return got == expected
"""

_FORWARD_CASE = """\
_inputs = _generate(_random.Random({seed}))
assert _same(main_solution(**_copy.deepcopy(_inputs)), _solve(**_copy.deepcopy(_inputs)))"""

_INVERSE_CASE = """\
_output = _solve(**_generate(_random.Random({seed})))
assert _same(_solve(**find_inputs(_copy.deepcopy(_output))), _output)"""


def load_reasoning_gym(
    name: str = "codeio",
    *,
    size: int | None = None,
    seed: int = 0,
    cases: int = 10,
    limits: GradingLimits | None = None,
    grading: GradingMode | str | None = None,
) -> TaskSuite:
    """Load code problems of the package ``reasoning-gym``.

    Args:
        name: ``codeio``: write the function that is described; ``codeio-inverse``: write a function that finds arguments for
            which a given function returns a given value; or a procedural data set, whose questions a program should answer,
            for example ``bf``: print the output of a Brainfuck program.
        size: Number of problems; all 3,002 of CodeI/O and 100 of the others if None.
        seed: Seed of the selection of problems and, for CodeI/O, of the test inputs.
        cases: Number of test inputs per problem, for CodeI/O.
        limits: Resource limits of submissions.
        grading: Where the tests run, see ``Task``: faithful for ``codeio`` only, whose functions serve as references.

    Raises:
        ConfigurationError: If the package is not installed, or has no such data set, or the tests do not permit the mode.
    """
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or spec.origin is None:
        message = f"The suite 'reasoning-gym:{name}' requires the package reasoning-gym: pip install 'coding-gym[tasks]'"
        raise ConfigurationError(message)
    limits = limits or GradingLimits()
    suite = f"reasoning-gym:{name}"
    if name in _PROGRAMS:
        programs = _programs(name, 100 if size is None else size, seed, limits)
        return TaskSuite(suite, (with_grading(task, grading) for task in programs))
    if name not in _CODE_IO:
        known = (*_CODE_IO, *_PROGRAMS)
        message = f"Expected reasoning-gym: with one of {', '.join(known)}; got {name!r}{hint(name, known)}"
        raise ConfigurationError(message)
    tests = range(seed * cases, (seed + 1) * cases)
    rows = _code_io_rows(Path(spec.origin).parent / "data" / "codeio.jsonl.gz", size, seed)
    tasks = (_CODE_IO[name](number, row, tests, limits) for number, row in rows)
    return TaskSuite(suite, (with_grading(task, grading) for task in tasks))


def _programs(name: str, size: int, seed: int, limits: GradingLimits) -> Iterator[Task]:
    import reasoning_gym

    for number, entry in enumerate(reasoning_gym.create_dataset(name, seed=seed, size=size)):
        yield Task(
            id=f"{name}/{seed}/{number}",
            prompt=f"Write a Python program that prints the answer to this, and nothing else.\n\n{entry['question'].strip()}",
            tests=Programs(cases=(ProgramCase(stdout=str(entry["answer"])),)),
            limits=limits,
            metadata={"source": "reasoning-gym", "dataset": name},
        )


def _code_io_rows(path: Path, size: int | None, seed: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with gzip.open(path, "rb") as file:
        lines = list(enumerate(file))
    if size is not None:
        if not 0 <= size <= len(lines):
            message = f"Expected size= to be 0 to {len(lines)}, or None for all, got {size}"
            raise ConfigurationError(message)
        lines = random.Random(seed).sample(lines, size)  # noqa: S311
    for number, line in lines:
        yield number, json.loads(line)


def _forward_task(number: int, row: Mapping[str, Any], tests: range, limits: GradingLimits) -> Task:
    signature = _signature(row["code_sample"])
    prompt = f"{row['task_description']}\n\nWrite the Python function `{signature}`.\n\n{row['input_output_spec']}"
    return Task(
        id=f"codeio/{number}",
        prompt=prompt,
        entry_point=_FUNCTION,
        tests=Asserts(setup=_setup(row), cases=tuple(_FORWARD_CASE.format(seed=seed) for seed in tests)),
        reference=row["code_sample"],
        limits=limits,
        metadata=_metadata(row),
    )


def _inverse_task(number: int, row: Mapping[str, Any], tests: range, limits: GradingLimits) -> Task:
    prompt = (
        f"{row['task_description']}\n\n{row['input_output_spec']}\n\nThis function does it:\n\n{row['code_sample']}\n\n"
        f"Write the Python function `{_INVERSE}(output)`: it receives what `{_FUNCTION}` returned, and returns a dict of "
        f"arguments for which `{_FUNCTION}` returns just that."
    )
    return Task(
        id=f"codeio-inverse/{number}",
        prompt=prompt,
        entry_point=_INVERSE,
        tests=Asserts(setup=_setup(row), cases=tuple(_INVERSE_CASE.format(seed=seed) for seed in tests)),
        limits=limits,
        metadata=_metadata(row),
    )


_CODE_IO: dict[str, Callable[[int, Mapping[str, Any], range, GradingLimits], Task]] = {
    "codeio": _forward_task,
    "codeio-inverse": _inverse_task,
}


def _setup(row: Mapping[str, Any]) -> str:
    return _SETUP.format(code=row["code_sample"], generator=row["input_generator"])


def _signature(code: str) -> str:
    module = parse(code)
    for node in module.body if module is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION:
            return f"{_FUNCTION}({ast.unparse(node.args)})"
    return f"{_FUNCTION}(...)"


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    known = ("difficulty", "clarity", "educational", "practice", "safety")
    return {"source": "reasoning-gym", "dataset": "codeio", **{name: row[name] for name in known if name in row}}
