"""Choice of the grading mode of tasks that are loaded."""

from __future__ import annotations

from dataclasses import replace

from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import GradingMode

__all__ = ["with_grading"]


def with_grading(task: Task, grading: GradingMode | str | None) -> Task:
    """Return a task that is graded in a mode; unchanged if the mode is None.

    Raises:
        ConfigurationError: If the task does not permit the mode.
    """
    return task if grading is None else replace(task, grading=grading)
