"""MBPP, Mostly Basic Python Problems (Austin et al. 2021), and its sanitized variant."""

from __future__ import annotations

from coding_gym.tasks.loaders.integers import with_hexadecimal
from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.loaders.split_tests import definitions, uses
from coding_gym.tasks.task import Task
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.protocol.grading import Asserts

__all__ = ["mbpp_task"]


def mbpp_task(row: TaskRow) -> Task:
    """Return the task of a row with ``text`` or ``prompt``, ``code``, ``test_list`` and related fields.

    The entry point is the name defined by the solution that the tests use first; without a solution there is none.

    Raises:
        RowError: If the row is not in this format.
    """
    text, reference = row.text("text", "prompt"), row.text("code", default="")
    shown = row.texts("test_list")
    cases = [with_hexadecimal(text) for text in (*shown, *row.texts("challenge_test_list"))]
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
        limits=row.limits,
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
