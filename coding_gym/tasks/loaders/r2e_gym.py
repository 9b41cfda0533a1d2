"""Rows of R2E-Gym: commits of repositories, whose tests are in their images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from coding_gym.tasks.loaders.integers import decode_json
from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.errors import reason_of

__all__ = ["r2e_gym_task"]

_DIRECTORY = "/testbed"
_TESTS = "/r2e_tests"
_SCRIPT = "run_tests.sh"
_COMMAND = f"[ -e r2e_tests ] || ln -s {_TESTS} r2e_tests; bash {_SCRIPT}"
_PATH = (
    f"{_DIRECTORY}/.venv/bin:/root/.venv/bin:/root/.local/bin:/root/.cargo/bin:"
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
"""As R2E-Gym's runtime has it, which links the programs of the virtual environment there."""

_TIMEOUT = 300.0
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_MARKS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}


def r2e_gym_task(row: TaskRow) -> Task:
    """Return the task of a row: an issue, and the results that the tests in its image have after its commit.

    Tests that fail after the commit, too, make no difference.

    Raises:
        RowError: If the row lacks what its tests require.
    """
    expected = row.decoded("expected_output_json")
    if not isinstance(expected, dict):
        message = f"expected expected_output_json to be an object of results by the names of tests, got {str(expected)[:100]!r}"
        raise RowError(message)
    names = [_COLOR.sub("", str(name)) for name, result in expected.items() if result == "PASSED"]
    if not names:
        message = "expected a test in expected_output_json that has PASSED"
        raise RowError(message)
    # Its prompt is what the statement was written for, and has the commit.
    statement = row.text("problem_statement")
    issue = _ISSUE.search(statement)
    repository, commit = row.text("repo_name", default=""), row.text("commit_hash", "new_commit_hash", default="")
    return Task(
        id=row.text("instance_id", default="__".join(filter(None, (repository, commit))) or row.id),
        prompt=(issue[1] if issue else statement).strip(),
        tests=RepositoryTests(
            image=row.text("docker_image"),
            directory=_DIRECTORY,
            protected=(".venv", _SCRIPT, "r2e_tests"),
            hidden=(_TESTS, "r2e_tests", _SCRIPT),
            environment={"PATH": _PATH},
            commands=(RepositoryCommand(command=_COMMAND, results="pytest summary", must_pass=tuple(names), timeout=_TIMEOUT),),
        ),
        reference=_reference(row),
        metadata=row.metadata("repo_name", "commit_hash", source="R2E-Gym"),
    )


class _Range(msgspec.Struct):
    start: int
    length: int | None = None

    def __str__(self) -> str:
        return f"{self.start}" if self.length is None else f"{self.start},{self.length}"


class _Descriptor(msgspec.Struct):
    old_range: _Range
    new_range: _Range
    section: str = ""


class _Line(msgspec.Struct):
    content: str
    type: str


class _Lines(msgspec.Struct):
    all_lines: list[_Line]


class _Hunk(msgspec.Struct):
    descriptor: _Descriptor
    line_group: _Lines


class _File(msgspec.Struct):
    path: str


class _Header(msgspec.Struct):
    file: _File
    misc_line: str | None = None


class _Diff(msgspec.Struct):
    header: _Header
    minus_file: _File | None = None
    plus_file: _File | None = None
    is_binary_file: bool = False
    hunks: list[_Hunk] = []

    @property
    def is_of_tests(self) -> bool:
        """Whether R2E-Gym counts the file among the tests."""
        *directories, name = self.header.file.path.split("/")
        return (
            name.startswith("test_") or name.endswith("_test.py") or bool({"tests", "Tests", "test", "Test"} & {*directories})
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines of the diff."""
        path = self.header.file.path
        yield f"diff --git a/{path} b/{path}"
        if self.header.misc_line:
            yield self.header.misc_line
        if self.minus_file is not None and self.plus_file is not None:
            yield f"--- {self.minus_file.path}"
            yield f"+++ {self.plus_file.path}"
        for hunk in self.hunks:
            section = f" {hunk.descriptor.section}" if hunk.descriptor.section else ""
            yield f"@@ -{hunk.descriptor.old_range} +{hunk.descriptor.new_range} @@{section}"
            for line in hunk.line_group.all_lines:
                yield f"{_MARKS.get(line.type, ' ')}{line.content}"


class _Commit(msgspec.Struct):
    file_diffs: list[_Diff]


def _reference(row: TaskRow) -> str | None:
    """Return the changes of the commit to Python files but tests, as R2E-Gym takes them."""
    content: Any = row.fields.get("parsed_commit_content")
    if content is None:
        return None
    try:
        commit = msgspec.convert(decode_json(content) if isinstance(content, str) else content, _Commit)
    except (ValueError, msgspec.ValidationError) as error:
        message = f"expected parsed_commit_content to be a commit of R2E-Gym: {reason_of(error)}"
        raise RowError(message) from error
    wanted = [diff for diff in commit.file_diffs if diff.header.file.path.endswith(".py") and not diff.is_of_tests]
    return "".join(f"{line}\n" for diff in wanted for line in diff.lines()) or None
