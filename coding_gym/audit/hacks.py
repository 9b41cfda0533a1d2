"""``Hack``: a program that tries to pass the tests of any task; and the collections of such programs."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import RepositoryTests, ScreenTests, Task

__all__ = ["Hack", "load_hacks", "own_hacks"]

_ENTRY = "ENTRY"


class Hack(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A program that tries to pass tests without solving a task.

    Attributes:
        hole: What a verifier that accepts it does wrong.
        name: What it does; unique in its collection.
        code: Its source; ``ENTRY`` stands for the task's entry point.
    """

    hole: str
    name: str
    code: str

    def attack(self, task: Task) -> str | None:
        """Return the submission to a task; None if the hack cannot attack tasks of its kind."""
        if isinstance(task.tests, RepositoryTests | ScreenTests):
            return None
        if task.entry_point is None and _ENTRY in self.code:
            return None
        return self.code.replace(_ENTRY, task.entry_point or "").lstrip("\n")


class _Collection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    hack: list[Hack]


def own_hacks() -> list[Hack]:
    """Return the hacks of this package."""
    text = resources.files("coding_gym.audit").joinpath("hacks.toml").read_text(encoding="utf-8")
    return _parse(text, "hacks.toml")


def load_hacks(path: Path) -> list[Hack]:
    """Return the hacks of a TOML file: tables ``[[hack]]`` with ``hole``, ``name`` and ``code``.

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
        message = f"Expected tables [[hack]] with hole, name and code in {source}: {error}"
        raise ConfigurationError(message) from error
    names = [hack.name for hack in hacks]
    if twice := {name for name in names if names.count(name) > 1}:
        message = f"Two hacks of {source} have the name {min(twice)!r}: names must be unique"
        raise ConfigurationError(message)
    return hacks
