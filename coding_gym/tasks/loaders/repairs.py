"""Loader of the suite ``repairs``: tasks of repositories, made from releases on PyPI.

A task is a TOML file in ``envs_registry/repairs``, which names two releases of a library: the image is made of the earlier one,
the tests are files of the later one, and the reference is what the later one changes. Their source distributions are downloaded
when the suite is first loaded, and kept in the cache.
"""

from __future__ import annotations

import difflib
import io
import tarfile
from collections.abc import Iterable
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from coding_gym.cache import cache_directory
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.modes import with_grading
from coding_gym.tasks.loaders.package_index import download, replace_file
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import GradingMode

__all__ = ["load_repairs", "repair_names"]

_SUITE = package_files("envs_registry") / "repairs"
_SUFFIX = ".toml"
_DOCKERFILE = "Dockerfile"
_DIRECTORY = "/testbed"
_TIMEOUT = 300.0

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]


class _Release(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A source distribution.

    Attributes:
        file: Its name in the package index, NAME-VERSION.tar.gz.
        sha256: Hash of its content.
    """

    file: Annotated[str, msgspec.Meta(pattern=r"\A[\w.-]+\.tar\.gz\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class _RepairFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Schema of a task's file. All paths are relative to the root of the source distributions.

    Attributes:
        prompt: The issue.
        difficulty: Difficulty of the task.
        tags: Topics.
        library: Name of the library in the package index.
        earlier: The release that has the defect.
        later: The next release, which has not.
        changes: Files that the later release changes to repair it.
        tests: Files of the later release that appear for the tests only.
        command: What runs the tests.
        must_pass: Tests that fail with the earlier release.
        keep_passing: Tests that pass with both.
    """

    prompt: _Text
    difficulty: Literal["easy", "medium", "hard"]
    tags: tuple[str, ...] = ()
    library: _Text
    earlier: _Release
    later: _Release
    changes: _Texts
    tests: _Texts
    command: _Text
    must_pass: _Texts
    keep_passing: tuple[_Text, ...] = ()


def repair_names() -> tuple[str, ...]:
    """Return the ids of the tasks of the suite, without downloading anything."""
    return tuple(_id_of(_SUITE, entry) for entry in _entries(_SUITE))


def load_repairs(directory: Path | None = None, *, grading: GradingMode | str | None = None) -> list[Task]:
    """Return the tasks of the suite, after downloading what the cache lacks of them.

    Args:
        directory: A directory of files in the same format, with a Dockerfile, instead of the suite ``repairs``.
        grading: The grading mode, see ``Task``.

    Raises:
        ConfigurationError: If a file is not in the format, or a source distribution cannot be downloaded, or is not the
            expected one.
    """
    suite = directory or _SUITE
    return [with_grading(_load(suite, entry), grading) for entry in _entries(suite)]


def _entries(suite: Traversable) -> list[Traversable]:
    return sorted((entry for entry in suite.iterdir() if entry.name.endswith(_SUFFIX)), key=lambda entry: entry.name)


def _id_of(suite: Traversable, entry: Traversable) -> str:
    return f"{suite.name}/{entry.name.removesuffix(_SUFFIX)}"


def _load(suite: Traversable, entry: Traversable) -> Task:
    try:
        content = msgspec.toml.decode(entry.read_bytes(), type=_RepairFile)
    except msgspec.MsgspecError as error:
        message = f"{entry} is not in the format of a repair: {error}"
        raise ConfigurationError(message) from error
    identity = _id_of(suite, entry)
    cached = cache_directory().absolute() / "releases" / identity
    image = cached / "image"
    earlier, later = image / "earlier.tar.gz", cached / "later.tar.gz"
    for release, path in ((content.earlier, earlier), (content.later, later)):
        download(content.library, release.file, sha256=release.sha256, path=path)
    dockerfile = (suite / _DOCKERFILE).read_bytes()
    if not (image / _DOCKERFILE).exists() or (image / _DOCKERFILE).read_bytes() != dockerfile:
        replace_file(image / _DOCKERFILE, dockerfile)
    directories = {path.rpartition("/")[0] or path for path in content.tests}
    return Task(
        id=identity,
        prompt=content.prompt.strip(),
        tests=RepositoryTests(
            image=str(image),
            directory=_DIRECTORY,
            files=dict(_read(later, content.tests)),
            # The library alone: other files configure pytest, or take the place of its modules.
            carried=tuple(sorted({_package_of(path) for path in content.changes})),
            protected=tuple(sorted(directories)),
            commands=(
                RepositoryCommand(
                    command=content.command,
                    must_pass=content.must_pass,
                    keep_passing=content.keep_passing,
                    timeout=_TIMEOUT,
                ),
            ),
        ),
        reference=_difference(_read(earlier, content.changes), _read(later, content.changes)),
        metadata={
            "suite": suite.name,
            "difficulty": content.difficulty,
            "tags": content.tags,
            "earlier": content.earlier.file,
            "later": content.later.file,
        },
    )


def _package_of(path: str) -> str:
    """Return the path of the top-level package or module that a file belongs to."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "src" else 1])


def _read(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the text of files of a source distribution, all of which are below one directory."""
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: member for member in archive if member.isfile()}
        if missing := sorted(set(names) - members.keys()):
            message = f"Expected {path} to have the file {missing[0]}; it has {len(members)} others"
            raise ConfigurationError(message)
        texts = {}
        for name in names:
            content = archive.extractfile(members[name])
            assert content is not None
            texts[name] = content.read().decode()
        return texts


def _difference(before: dict[str, str], after: dict[str, str]) -> str:
    """Return a unified diff of files."""
    lines: list[str] = []
    for name, text in before.items():
        lines += difflib.unified_diff(_lines(text), _lines(after[name]), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text as patches have them: none ends with anything but a line feed."""
    return list(io.StringIO(text, newline="\n"))
