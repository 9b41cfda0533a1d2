"""Task folders, of Harbor and of Terminal-Bench."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.harbor import harbor_task
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.terminal_bench import terminal_bench_task
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import GradingMode

__all__ = ["find_task_folders", "load_task_folders", "read_task_folders"]

_log = logging.getLogger(__name__)

_FORMATS: dict[str, Callable[[Path], Task]] = {"task.toml": harbor_task, "task.yaml": terminal_bench_task}


def find_task_folders(path: Path) -> list[Path]:
    """Return a directory if it is a task folder, or else those directories in it that are; none if there are none."""
    if not path.is_dir():
        return []
    if _is_task_folder(path):
        return [path]
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_task_folder(folder))


def read_task_folders(path: Path) -> Iterator[tuple[str, Task | ConfigurationError]]:
    """Yield the name of each task folder, and its task, or why it is none.

    Args:
        path: A task folder, or a directory of task folders.
    """
    for folder in find_task_folders(path.resolve()):
        name = next(name for name in _FORMATS if (folder / name).exists())
        try:
            yield folder.name, _FORMATS[name](folder)
        except ConfigurationError as error:
            yield folder.name, error


def load_task_folders(
    path: Path, *, unsupported: Literal["refuse", "skip"] = "refuse", grading: GradingMode | str | None = None
) -> TaskSuite:
    """Load the task of a folder, or those of a directory of task folders.

    Args:
        path: The folder, or the directory.
        unsupported: Whether to ``"refuse"`` a directory with a folder that is no task, or uses what is not supported, or to
            ``"skip"`` the folder with a warning.
        grading: Where the tests run, see ``Task``.

    Raises:
        ConfigurationError: If a folder is refused; the message names what it uses.
    """
    if unsupported not in ("refuse", "skip"):
        message = f"Expected unsupported= to be 'refuse' or 'skip', got {unsupported!r}"
        raise ConfigurationError(message)
    tasks = []
    for _, found in read_task_folders(path):
        if isinstance(found, Task):
            tasks.append(with_grading(found, grading))
        elif unsupported == "skip":
            _log.warning("skipped: %s", found)
        else:
            message = f"{found}. Load the other folders of a directory with unsupported='skip'"
            raise ConfigurationError(message) from found
    return TaskSuite(path.resolve().name, tasks)


def _is_task_folder(path: Path) -> bool:
    return any((path / name).is_file() for name in _FORMATS)
