"""``Hack``: a submission that tries to pass the tests of any task; and the collections of such submissions."""

from __future__ import annotations

import difflib
import posixpath
import shlex
import tomllib
from importlib import resources
from pathlib import Path

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import RepositoryTests, ScreenTests, Task

__all__ = ["Hack", "load_hacks", "own_hacks"]

_ENTRY = "ENTRY"


class Hack(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A submission that tries to pass tests without solving a task. It has one of ``code``, ``files`` and ``script``.

    Attributes:
        hole: What a verifier that accepts it does wrong.
        name: What it does; unique in its collection.
        code: Source of a program; ``ENTRY`` stands for the task's entry point.
        files: For tasks of repositories: new files, by their paths in the directory of the tests.
        script: For tasks of repositories whose submissions are scripts: the script.
    """

    hole: str
    name: str
    code: str = ""
    files: dict[str, str] = {}
    script: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.code, self.files, self.script))) != 1:
            message = f"expected the hack {self.name!r} to have one of code, files and script"
            raise ValueError(message)

    def attack(self, task: Task) -> str | None:
        """Return the submission to a task; None if the hack cannot attack tasks of its kind."""
        if isinstance(task.tests, RepositoryTests):
            if task.tests.submission == "patch":
                return "".join(_new_file(*file) for file in self.files.items()) or None
            return self.script.lstrip("\n") or "".join(_write_file(*file) for file in self.files.items()) or None
        if isinstance(task.tests, ScreenTests) or not self.code or (task.entry_point is None and _ENTRY in self.code):
            return None
        return self.code.replace(_ENTRY, task.entry_point or "").lstrip("\n")


def _new_file(path: str, text: str) -> str:
    """Return a unified diff that makes a file."""
    lines = [f"{line}\n" for line in text.strip("\n").split("\n")]
    return "".join(difflib.unified_diff([], lines, "/dev/null", f"b/{path}"))


def _write_file(path: str, text: str) -> str:
    """Return shell commands that write a file."""
    content, directory = shlex.quote(text.strip("\n")), shlex.quote(posixpath.dirname(path) or ".")
    return f"mkdir -p {directory} && printf '%s\\n' {content} >{shlex.quote(path)}\n"


class _Collection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    hack: list[Hack]


def own_hacks() -> list[Hack]:
    """Return the hacks of this package."""
    text = resources.files("coding_gym.audit").joinpath("hacks.toml").read_text(encoding="utf-8")
    return _parse(text, "hacks.toml")


def load_hacks(path: Path) -> list[Hack]:
    """Return the hacks of a TOML file: tables ``[[hack]]`` with the attributes of ``Hack``.

    Raises:
        ConfigurationError: If it is no such file, or two hacks have the same name.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"Expected a TOML file of hacks, got {path}: {error}"
        raise ConfigurationError(message) from error
    return _parse(text, str(path))


def _parse(text: str, source: str) -> list[Hack]:
    try:
        hacks = msgspec.convert(tomllib.loads(text), _Collection).hack
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        message = f"Expected tables [[hack]] with hole, name, and code, files or script in {source}: {error}"
        raise ConfigurationError(message) from error
    names = [hack.name for hack in hacks]
    if twice := {name for name in names if names.count(name) > 1}:
        message = f"Two hacks of {source} have the name {min(twice)!r}: names must be unique"
        raise ConfigurationError(message)
    return hacks
