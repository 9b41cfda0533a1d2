"""Rows of SWE-smith: repositories with a bug, whose fix is the reverse of its patch."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from coding_gym.cache import cache_directory
from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task

__all__ = ["reversed_patch", "swe_smith_task"]

_DIRECTORY = "/testbed"
_COMMAND = (
    "source /opt/miniconda3/bin/activate && conda activate testbed && pytest --disable-warnings --color=no --tb=no --verbose"
)
"""As SWE-smith's harness runs tests, unless a repository has a command of its own."""

_DOCKERFILE = """FROM {image}
COPY bug.patch bug.sh /tmp/
RUN cd {directory} && sh -e /tmp/bug.sh && rm /tmp/bug.patch /tmp/bug.sh
"""
_SCRIPT = """git -c safe.directory='*' apply --whitespace=nowarn /tmp/bug.patch || patch --batch --fuzz=5 -p1 -i /tmp/bug.patch
if [ -e .git ]; then
    git -c safe.directory='*' add --all -- {paths}
    git -c safe.directory='*' -c user.name=swesmith -c user.email= commit --quiet --amend --no-edit --no-verify
fi
"""
"""The last commit has the bug, too: it would tell the fix."""

_HUNK = re.compile(r"^@@ -(\S+) \+(\S+) @@(.*)$")
_PATHS = re.compile(r"^diff --git a/(.*) b/(.*)$", re.MULTILINE)
_REVERSED = {"+": "-", "-": "+"}
_NONE = "/dev/null"
_SWAPPED = {
    "--- ": "+++ ",
    "+++ ": "--- ",
    "old mode ": "new mode ",
    "new mode ": "old mode ",
    "rename from ": "rename to ",
    "rename to ": "rename from ",
}


def swe_smith_task(row: TaskRow) -> Task:
    """Return the task of a row. Its image is that of the row with the bug, which is built from a file in the cache.

    The command is that of the row (``test_cmd``), or SWE-smith's; the files with tests that the row names follow it.

    Raises:
        RowError: If the row lacks what its tests require, or they are not pytest's.
    """
    identity, bug = row.text("instance_id"), row.text("patch")
    must_pass, keep_passing = row.texts("FAIL_TO_PASS"), row.texts("PASS_TO_PASS")
    if not must_pass:
        message = "expected FAIL_TO_PASS to name a test"
        raise RowError(message)
    other = next((name for name in (*must_pass, *keep_passing) if "::" not in name), None)
    if other is not None:
        message = f"expected tests that pytest names, FILE::TEST, got {other[:100]!r}: other test runners are not supported"
        raise RowError(message)
    broken = sorted({name.partition("::")[0] for name in must_pass})
    files = sorted({*broken, *(name.partition("::")[0] for name in keep_passing)})
    command = row.text("test_cmd", default="") or _COMMAND
    return Task(
        id=identity,
        prompt=row.text("problem_statement"),
        tests=RepositoryTests(
            image=str(_directory_with_bug(row.text("image_name"), bug)),
            directory=_DIRECTORY,
            protected=tuple(files),
            hidden=tuple(broken),
            commands=(
                RepositoryCommand(
                    command=" ".join([command, *map(shlex.quote, files)]),
                    must_pass=tuple(must_pass),
                    keep_passing=tuple(keep_passing),
                ),
            ),
        ),
        reference=reversed_patch(bug),
        metadata=row.metadata("repo", "image_name", source="SWE-smith"),
    )


def _directory_with_bug(image: str, patch: str) -> Path:
    """Return a directory with the Dockerfile of an image with a bug: those of SWE-smith have the repositories without one."""
    paths = {shlex.quote(path) for pair in _PATHS.findall(patch) for path in pair}
    files = {
        "bug.patch": f"{patch.rstrip()}\n",
        "bug.sh": _SCRIPT.format(paths=" ".join(sorted(paths)) or "."),
        # Written last, it says that the directory is complete.
        "Dockerfile": _DOCKERFILE.format(image=image, directory=_DIRECTORY),
    }
    digest = hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:16]
    directory = cache_directory() / "swe-smith" / digest
    if not (directory / "Dockerfile").exists():
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8", newline="\n")
    return directory


def reversed_patch(patch: str) -> str:
    """Return the patch that undoes a unified diff of git."""
    diffs = re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE)
    return "".join(f"{line}\n" for diff in diffs if diff.strip() for line in _reversed(diff.removesuffix("\n").split("\n")))


def _reversed(lines: list[str]) -> Iterator[str]:
    """Yield the lines of the reverse of a diff of one file."""
    first = next((place for place, line in enumerate(lines) if _HUNK.match(line)), len(lines))
    yield from _reversed_header(lines[:first])
    for line in lines[first:]:
        hunk = _HUNK.match(line)
        yield f"@@ -{hunk[2]} +{hunk[1]} @@{hunk[3]}" if hunk else f"{_REVERSED.get(line[:1], line[:1])}{line[1:]}"


def _reversed_header(lines: list[str]) -> Iterator[str]:
    """Yield the lines in front of the hunks of a diff, with the old and the new swapped."""
    values = {name: line.removeprefix(name) for line in lines for name in _SWAPPED if line.startswith(name)}
    for line in lines:
        name = next((name for name in _SWAPPED if line.startswith(name)), None)
        if paths := _PATHS.fullmatch(line):
            yield f"diff --git a/{paths[2]} b/{paths[1]}"
        elif name in ("--- ", "+++ "):
            side, path = ("a/", values["+++ "]) if name == "--- " else ("b/", values["--- "])
            yield f"{name}{path if path == _NONE else f'{side}{path[2:]}'}"
        elif line.startswith(("new file mode ", "deleted file mode ")):
            kind, _, mode = line.partition(" file mode ")
            yield f"{'deleted' if kind == 'new' else 'new'} file mode {mode}"
        elif name is not None:
            yield f"{name}{values[_SWAPPED[name]]}"
        elif not line.startswith("index "):
            yield line
