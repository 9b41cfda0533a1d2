"""MBPP, Mostly Basic Python Problems (Austin et al. 2021), and its sanitized variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.json_lines import read_rows
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.rows import LoadOptions, RowError, TaskRow
from coding_gym.tasks.loaders.split_tests import definitions, uses
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.protocol.grading import Asserts

__all__ = ["load_mbpp", "mbpp_task"]


def load_mbpp(path: Path | str, **options: Any) -> TaskSuite:
    """Load the problems of MBPP, 974 in the original, from the file ``mbpp.jsonl``.

    Args:
        path: The JSON Lines file or JSON array, of the original or of the sanitized variant.
        options: ``show_tests``: number of tests that a prompt shows, by default 3 as in the paper; these also count in grading.
            ``limits``: resource limits of submissions. ``grading``: where the tests run, see ``Task``.

    Raises:
        ConfigurationError: If there is no such file, or it is not in this format.
    """
    loading = LoadOptions(**options)
    tasks = []
    for number, (where, fields) in enumerate(read_rows(Path(path))):
        try:
            task = mbpp_task(TaskRow(fields, number=number, source="mbpp", options=loading))
            tasks.append(with_grading(task, loading.grading))
        except ConfigurationError as error:
            message = f"{where}: {error}"
            raise ConfigurationError(message) from error
    return TaskSuite("mbpp", tasks)


def mbpp_task(row: TaskRow) -> Task:
    """Return the task of a row with ``text`` or ``prompt``, ``code``, ``test_list`` and related fields.

    The entry point is the name defined by the solution that the tests use first; without a solution there is none.

    Raises:
        RowError: If the row is not in this format.
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
        message = f"its tests use none of the names that its code defines: {cases[0][:100]!r}"
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
    """Return the prompt in the wording of the paper."""
    parts = [text]
    if shown:
        parts.append("Your code should pass these tests:")
        # Objects that the setup code creates cannot be guessed from the tests alone.
        parts.append("\n".join([*(line.rstrip("\r\n") for line in source_lines(setup)), *shown]))
    return "\n\n".join(parts)
