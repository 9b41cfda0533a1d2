"""``compute_score``: verl's custom reward function, which grades with hidden tests."""

from __future__ import annotations

import ast
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from coding_gym.errors import ConfigurationError, PoolClosedError, ProviderError
from coding_gym.tasks import Asserts, Task
from coding_gym.tasks.loaders.calls import call_of_values, call_tests, results
from coding_gym.tasks.loaders.competitions import apps_task, contest_task
from coding_gym.tasks.loaders.programs import paired
from coding_gym.tasks.loaders.row_tests import RowTests
from coding_gym.tasks.loaders.rows import EntryPoint, LoadOptions, TaskRow, is_list
from coding_gym.tasks.submission import parse
from coding_gym.wrappers.actions import extract_code
from coding_gym_trainers._sharing import close_sandboxes, shared_grader, shared_suite

__all__ = ["close_graders", "compute_score"]

_PAUSE_SECONDS = 5.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    suite: str | None = None,
    sandbox: Mapping[str, Any] | None = None,
    patience: float = 600.0,
    on_fault: float | None = None,
    **_: Any,
) -> dict[str, float]:
    """Return the fraction of hidden tests that the code of a response passes.

    The code is the last Python block of the response, or the whole response if it has no fence.

    An infrastructure error says nothing about the code, and verl has no reward that means this: it averages whatever number it
    gets. So the code is graded again, for ``patience`` seconds. Then an exception ends the training, which can continue from
    its last checkpoint; or, with ``on_fault``, the response gets that score, and ``fault`` marks it.

    Args:
        data_source: Ignored.
        solution_str: The response.
        ground_truth: Id of a task of ``suite``; without a suite, the tests as verl's own rewards have them: a mapping, or its
            JSON, with ``inputs`` and ``outputs``, optionally ``fn_name``, or with ``assert_case``, a list of assertions.
        extra_info: Ignored.
        suite: Name of a task suite, an argument of ``load_suite``.
        sandbox: Fields of ``SandboxConfig`` for the grader, which all calls of this process share.
        patience: Maximum number of seconds to grade again after an infrastructure error.
        on_fault: Score after an infrastructure error; an exception if None.

    Returns:
        ``score``, 0 to 1; ``acc``, 1 if all tests passed; and ``fault``, 1 after an infrastructure error.

    Raises:
        ConfigurationError: If there is no such task, or the tests are in another format.
        PoolClosedError: If ``close_graders`` is called meanwhile.
        ProviderError: After an infrastructure error, unless ``on_fault`` is set.
    """
    code = extract_code(solution_str)
    task = _task_of(suite, ground_truth, code)
    # verl calls a function, which nothing can be passed along with: a grader is that of the process.
    grader = shared_grader(None, json.loads(json.dumps(sandbox or {}, default=_plain)))
    deadline = time.monotonic() + patience
    while True:
        reason = "no sandbox is available"
        try:
            verdict = grader.grade(task, code)
        except PoolClosedError:
            raise
        except ProviderError:
            pass
        else:
            if verdict.score is not None:
                return {"score": verdict.score, "acc": float(verdict.solved), "fault": 0.0}
            reason = verdict.message
        if time.monotonic() >= deadline:
            break
        time.sleep(min(_PAUSE_SECONDS, patience))
    if on_fault is None:
        message = f"A response could not be graded within {patience:g} s, which says nothing about its code: {reason}"
        raise ProviderError(message)
    return {"score": float(on_fault), "acc": 0.0, "fault": 1.0}


def close_graders() -> None:
    """Remove the sandboxes that the graders of this process share, which otherwise end with it."""
    close_sandboxes()


def _task_of(suite: str | None, ground_truth: Any, code: str) -> Task:
    if suite is not None:
        tasks = shared_suite(suite)
        if ground_truth not in tasks.ids:
            message = f"Expected ground_truth to be the id of a task of the suite {suite!r}, got {ground_truth!r:.100}"
            raise ConfigurationError(message)
        return tasks[str(ground_truth)]
    tests = ground_truth
    if isinstance(tests, str):
        with contextlib.suppress(ValueError):
            tests = json.loads(tests)
    if not isinstance(tests, Mapping):
        message = f"Expected ground_truth to have tests, or suite= with the suite of its task, got {ground_truth!r:.100}"
        raise ConfigurationError(message)
    # Rows of a table have all columns; those without a value are null, or empty.
    asserts: Any = tests.get("assert_case")
    if is_list(asserts) and (cases := tuple(asserts)):
        return Task(id="verl", prompt="", tests=Asserts(cases=cases))
    row = TaskRow({"id": "verl", "prompt": "", "input_output": tests}, number=0, source="verl", options=LoadOptions())
    if not tests.get("fn_name"):
        return apps_task(row)
    function = str(tests["fn_name"])
    target = EntryPoint(f"Solution().{function}" if _is_method(function, code) else function)
    inputs, outputs = paired(tests.get("inputs"), tests.get("outputs"), "ground_truth")
    if not inputs:
        message = "Expected ground_truth to have at least one of inputs and outputs"
        raise ConfigurationError(message)
    calls = [
        call_of_values(target, _arguments(given), _accepted(wanted)) for given, wanted in zip(inputs, outputs, strict=True)
    ]
    return contest_task(row, "", RowTests("ground_truth", call_tests(calls), target), source="verl")


def _is_method(function: str, code: str) -> bool:
    """Return whether a function is a method of a ``class Solution``: the code has that, and no function of the name."""
    module = parse(code)
    if module is None:
        return False
    names = set(_names(module))
    return "Solution" in names and function not in names


def _names(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _arguments(text: Any) -> list[Any]:
    """Return the arguments of a call, which verl has as lines of JSON."""
    if not isinstance(text, str):
        return list(text) if is_list(text) else [text]
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        message = f"Expected inputs of ground_truth to be arguments of fn_name, each a line of JSON, got {text!r:.100}: {error}"
        raise ConfigurationError(message) from error


def _accepted(output: Any) -> list[Any]:
    """Return the accepted results of a call.

    Of a text, they are its JSON value, which ``prime_code`` compares with the result, and itself: ``sandbox_fusion`` compares
    it with what ``json.dumps`` or ``str`` makes of the result, without line breaks at the end.
    """
    if not isinstance(output, str):
        return results(output)
    accepted: list[Any] = list(dict.fromkeys((output.rstrip("\n"), output)))
    with contextlib.suppress(ValueError):
        accepted.insert(0, json.loads(output))
    return accepted


def _plain(value: Any) -> Any:
    """Return a mapping or sequence of OmegaConf, as verl passes ``reward_kwargs``, as a dict or list."""
    return dict(value) if isinstance(value, Mapping) else list(value)
