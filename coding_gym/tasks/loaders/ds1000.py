"""DS-1000 (Lai et al. 2022): problems with data-science libraries, whose tests insert the answer into a program."""

from __future__ import annotations

import re
from collections.abc import Mapping

from coding_gym.tasks.loaders.rows import TaskRow
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import UnitTests

__all__ = ["ds1000_task"]

_ANSWER = "answer"
_HEADER = "import unittest\n\n\nclass TestAnswer(unittest.TestCase):\n"
_EXECUTION = f"    def test_execution(self):\n        check_execution({_ANSWER})\n"
_STRING = f"    def test_string(self):\n        check_string({_ANSWER})\n"
_CHECKS = re.compile(r"\btest_(execution|string)\b")


def ds1000_task(row: TaskRow) -> Task:
    """Return the task of a row with ``prompt``, ``reference_code``, ``code_context`` and ``metadata``.

    ``code_context`` defines ``test_execution(solution)``, which inserts the text of the answer into a program and runs it, and
    for some problems ``test_string(solution)``. Both count.

    Raises:
        RowError: If the row is not in this format.
    """
    # By its own name, pytest would take it for a test with a fixture.
    context = _CHECKS.sub(r"check_\1", row.text("code_context"))
    reference = row.text("reference_code", default="")
    has_string_test = "def check_string(" in context
    details = row.fields.get("metadata")
    details = dict(details) if isinstance(details, Mapping) else {}
    number = details.get("problem_id", row.fields.get("problem_id"))
    return Task(
        id=row.id if number is None else f"DS-1000/{number}",
        prompt=row.text("prompt"),
        text_variable=_ANSWER,
        tests=UnitTests(source=f"{context}\n\n{_HEADER}{_EXECUTION}{_STRING if has_string_test else ''}"),
        reference=reference or None,
        limits=row.limits,
        metadata={"source": "DS-1000", **{str(name): value for name, value in details.items()}},
    )
