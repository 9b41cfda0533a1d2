"""Rows of SWE-bench, and of data sets with its columns, such as SWE-Gym's: issues of repositories, with their fixes."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import Literal, NamedTuple

from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task

__all__ = ["swe_bench_task"]

_DIRECTORY = "/testbed"
_ACTIVATE = "source /opt/miniconda3/bin/activate && conda activate testbed && "
"""The interpreter of the repository in SWE-bench's images."""

_CHANGED = re.compile(r"^diff --git a/.* b/(.*)$", re.MULTILINE)
_NO_TESTS = frozenset((".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"))


class _Runner(NamedTuple):
    """How the tests of a repository are run.

    Attributes:
        command: Command that the files or modules with tests follow.
        results: What tells the results.
    """

    command: str
    results: Literal["pytest", "unittest", "sympy"] = "pytest"


_PYTEST = _Runner("pytest -rA")
_RUNNERS = {
    "astropy/astropy": _Runner("pytest -rA -vv -o console_output_style=classic --tb=no"),
    "django/django": _Runner("./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1", "unittest"),
    "mwaskom/seaborn": _Runner("pytest --no-header -rA"),
    "sphinx-doc/sphinx": _Runner("tox --current-env -epy39 -v --"),
    "sympy/sympy": _Runner("PYTHONWARNINGS=ignore::UserWarning,ignore::SyntaxWarning bin/test -C --verbose", "sympy"),
}
"""As SWE-bench's harness runs them (``swebench/harness/constants``); the others with pytest."""


def swe_bench_task(row: TaskRow) -> Task:
    """Return the task of a row: an issue, whose tests are those of its fix.

    The image is that of the row (``image_name``, ``docker_image`` or ``image``), or SWE-bench's for its ``instance_id``. The
    command is that of the row (``test_cmd``), or that of SWE-bench's harness for the repository.

    Raises:
        RowError: If the row lacks what its tests require.
    """
    identity = row.text("instance_id")
    patch = row.text("test_patch")
    changed = [path for path in _CHANGED.findall(patch) if posixpath.splitext(path)[1] not in _NO_TESTS]
    must_pass = row.texts("FAIL_TO_PASS", "fail_to_pass")
    if not must_pass:
        message = "expected FAIL_TO_PASS to name a test"
        raise RowError(message)
    repository = row.text("repo", default="")
    runner = _RUNNERS.get(repository, _PYTEST)
    if repository == "django/django":
        changed = [_module_of(path) for path in changed]
    command = row.text("test_cmd", default="") or _ACTIVATE + runner.command
    tests = RepositoryTests(
        image=row.text("image_name", "docker_image", "image", default=_image_of(identity)),
        directory=row.text("directory", default=_DIRECTORY),
        patch=patch,
        commands=(
            RepositoryCommand(
                command=" ".join([command, *map(shlex.quote, changed)]),
                results=runner.results,
                must_pass=tuple(must_pass),
                keep_passing=tuple(row.texts("PASS_TO_PASS", "pass_to_pass")),
            ),
        ),
    )
    return Task(
        id=identity,
        prompt=row.text("problem_statement"),
        tests=tests,
        reference=row.text("patch", "gold_patch", default="") or None,
        metadata=row.metadata("repo", "base_commit", "version", "difficulty", source="SWE-bench"),
    )


def _image_of(identity: str) -> str:
    """Return the name of SWE-bench's image, in which two underscores are not permitted."""
    return f"swebench/sweb.eval.x86_64.{identity.lower().replace('__', '_1776_')}:latest"


def _module_of(path: str) -> str:
    """Return the name of a module with Django's tests, as its runner has it."""
    return path.removesuffix(".py").removeprefix("tests/").replace("/", ".")
