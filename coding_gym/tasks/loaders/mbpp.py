"""MBPP, Mostly Basic Python Problems (Austin et al. 2021), and its sanitized variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.check_functions import definitions, uses
from coding_gym.tasks.loaders.fields import LoadOptions, Row, RowError
from coding_gym.tasks.loaders.jsonl import read_rows
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task
from coding_gym_server.grading.messages import Asserts

__all__ = ["load_mbpp", "mbpp_task"]


def load_mbpp(path: Path | str, **options: Any) -> TaskSuite:
    """Return the problems of MBPP, 974 of them in the original, from the file ``mbpp.jsonl``.

    Args:
        path: The JSON Lines file, of the original or of the sanitized variant.
        options: ``show_tests``: how many of the tests a prompt shows, 3 as in the paper unless told otherwise; those shown are
            graded by, too. ``limits``: what submissions may use.

    Raises:
        ConfigurationError: There is no such file, or it is another.
    """
    loading = LoadOptions(**options)
    tasks = []
    for number, line, fields in read_rows(Path(path)):
        try:
            tasks.append(mbpp_task(Row(fields, number=number, source="mbpp", options=loading)))
        except RowError as error:
            message = f"{path}, line {line}: {error}"
            raise ConfigurationError(message) from error
    return TaskSuite("mbpp", tasks)


def mbpp_task(row: Row) -> Task:
    """Return the task of a row with ``text`` or ``prompt``, ``code``, ``test_list`` and the like.

    The entry point is what the tests call of what the solution defines; without a solution, what they call first.

    Raises:
        RowError: It is none.
    """
    text, reference = row.text("text", "prompt"), row.text("code", default="")
    shown = row.texts("test_list")
    cases = [*shown, *row.texts("challenge_test_list")]
    if not cases:
        message = f"there are no tests in test_list; {row.describe()}"
        raise RowError(message)
    setup = "\n".join([*row.texts("test_imports"), row.text("test_setup_code", default="")]).strip("\n")
    called = uses(cases, definitions(reference))
    if reference and not called:
        message = f"its tests use nothing of what its code defines: {cases[0][:100]!r}"
        raise RowError(message)
    return Task(
        id=row.id,
        prompt=_prompt(text, row.text("test_setup_code", default=""), shown[: row.options.show_tests]),
        entry_point=called[0] if called else None,
        tests=Asserts(setup=setup, cases=tuple(cases)),
        reference=reference or None,
        limits=row.options.limits,
        metadata=row.metadata("source_file", source="MBPP"),
    )


def _prompt(text: str, setup: str, shown: list[str]) -> str:
    """Return the prompt in the paper's words."""
    parts = [text]
    if shown:
        parts.append("Your code should pass these tests:")
        # What the tests are about cannot be guessed where it is made elsewhere.
        parts.append("\n".join([*setup.splitlines(), *shown]))
    return "\n\n".join(parts)
