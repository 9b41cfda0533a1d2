"""Task folders, of Harbor and of Terminal-Bench, and packages of contest problems, of Polygon and of Kattis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.harbor import harbor_task
from coding_gym.tasks.loaders.kattis import kattis_task
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.polygon import polygon_task
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym.tasks.loaders.terminal_bench import terminal_bench_task
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task

__all__ = ["find_task_folders", "load_task_folders", "read_task_folders"]

_log = logging.getLogger(__name__)

_FORMATS: dict[str, Callable[[Path, LoadOptions], Task]] = {
    "task.toml": lambda folder, options: _of_repository(harbor_task, folder, options),
    "task.yaml": lambda folder, options: _of_repository(terminal_bench_task, folder, options),
    "problem.xml": polygon_task,
    "problem.yaml": kattis_task,
}


def find_task_folders(path: Path) -> list[Path]:
    """Return a directory if it is a task folder, or else those directories in it that are; none if there are none."""
    if not path.is_dir():
        return []
    if _is_task_folder(path):
        return [path]
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_task_folder(folder))


def read_task_folders(path: Path, options: LoadOptions | None = None) -> Iterator[tuple[str, Task | ConfigurationError]]:
    """Yield the name of each task folder, and its task, or why it is none.

    Args:
        path: A task folder, or a directory of task folders.
        options: Loader options, of packages of contest problems.
    """
    for folder in find_task_folders(path.resolve()):
        name = next(name for name in _FORMATS if (folder / name).exists())
        try:
            yield folder.name, _FORMATS[name](folder, options or LoadOptions())
        except ConfigurationError as error:
            yield folder.name, error


def load_task_folders(path: Path, **options: Any) -> TaskSuite:
    """Load the task of a folder, or those of a directory of task folders.

    Args:
        path: The folder, or the directory.
        options: Fields of ``LoadOptions``: ``unsupported`` and ``grading`` and, for packages of contest problems, ``limits``,
            ``time_factor``, ``language``, ``compare``, ``tolerance``, ``random_seed`` and ``testlib``.

    Raises:
        ConfigurationError: If a folder is refused; the message names what it uses.
    """
    loading = LoadOptions(**options)
    tasks = []
    for _, found in read_task_folders(path, loading):
        if isinstance(found, Task):
            tasks.append(with_grading(found, loading.grading))
        elif loading.unsupported == "skip":
            _log.warning("skipped: %s", found)
        else:
            message = f"{found}. Load the other folders of a directory with unsupported='skip'"
            raise ConfigurationError(message) from found
    return TaskSuite(path.resolve().name, tasks)


def _of_repository(load: Callable[[Path], Task], folder: Path, options: LoadOptions) -> Task:
    """Return the task of a folder of Harbor or Terminal-Bench, which say themselves how their sessions are limited.

    Raises:
        ConfigurationError: If there are options that are only for packages of contest problems.
    """
    if replace(options, unsupported="refuse", grading=None) != LoadOptions():
        message = f"{folder} is a task of a repository, which has no options but unsupported and grading"
        raise ConfigurationError(message)
    return load(folder)


def _is_task_folder(path: Path) -> bool:
    return any((path / name).is_file() for name in _FORMATS)
