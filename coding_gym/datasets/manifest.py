"""What a dataset was made with: the file ``manifest.json``."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import msgspec

from coding_gym.errors import DatasetError
from coding_gym.version import __version__

__all__ = ["Arguments", "Manifest", "Run", "Versions", "difference"]

_FILE = "manifest.json"
_LIBRARIES = ("gymnasium", "numpy")


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What decides what is in the episodes: who goes on with a dataset must ask for the same.

    Attributes:
        env: The environment's id, or the name of the callable that makes it.
        env_options: What it is made with.
        wrappers: The names of what is put around it.
        policy: What the policy says about itself.
        seed: Of the dataset.
        max_steps: Steps after which an episode is truncated.
        reset_options: The hash of the options that all episodes are reset with, empty if there are none.
        tasks: The tasks, in turns.
    """

    env: str
    env_options: dict[str, Any] = {}
    wrappers: list[str] = []
    policy: dict[str, Any] = {}
    seed: int
    max_steps: int
    reset_options: str = ""
    tasks: list[str] = []


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What ran.

    Attributes:
        coding_gym: This package.
        python: Of the host.
        libraries: Of the host, by name.
        sandbox: What the sandboxes were: the provider and its image. Empty if the environment is not one of this package.
    """

    coding_gym: str
    python: str
    libraries: dict[str, str] = {}
    sandbox: str = ""

    @classmethod
    def current(cls, *, sandbox: str = "") -> Self:
        """Return what runs here."""
        libraries = {name: metadata.version(name) for name in _LIBRARIES}
        return cls(coding_gym=__version__, python=platform.python_version(), libraries=libraries, sandbox=sandbox)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One call of ``collect``; a dataset has several if one was killed, or if it was extended.

    Attributes:
        started: When, in ISO 8601, UTC.
        had: Episodes that were there already.
        sessions: How many were collected at a time.
        versions: What ran.
    """

    started: str
    had: int
    sessions: int
    versions: Versions

    @classmethod
    def starting(cls, *, had: int, sessions: int, sandbox: str) -> Self:
        """Return one that starts now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(started=now, had=had, sessions=sessions, versions=Versions.current(sandbox=sandbox))


class Manifest(msgspec.Struct, kw_only=True):
    """What a dataset was made with.

    Attributes:
        arguments: What decides what is in the episodes.
        runs: The calls of ``collect``.
        episodes: How many there are to be.
        sha256: The hash of all episodes' hashes, in order; None until all are there.
    """

    arguments: Arguments
    runs: list[Run] = []
    episodes: int = 0
    sha256: str | None = None

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the manifest of a directory, None if it has none.

        Raises:
            DatasetError: It is damaged, or of another version.
        """
        try:
            return msgspec.json.decode((directory / _FILE).read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeError) as error:
            message = f"{directory / _FILE} is no manifest of a dataset, or one of another version of coding-gym: {error}"
            raise DatasetError(message) from error

    def write(self, directory: Path) -> None:
        """Write it, replacing the old one in one go."""
        new = directory / f".{_FILE}"
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(directory / _FILE)


def difference(found: Arguments, wanted: Arguments) -> str | None:
    """Return how two lists of arguments differ, in words; None if they do not."""
    # As they are read back: tuples are lists.
    then, now = (msgspec.json.decode(msgspec.json.encode(arguments)) for arguments in (found, wanted))
    return _first_difference(then, now, "")


def _first_difference(then: Any, now: Any, where: str) -> str | None:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in [*then, *(name for name in now if name not in then)]:
            inside = f"{where}.{name}" if where else str(name)
            found = _first_difference(then.get(name), now.get(name), inside)
            if found is not None:
                return found
        return None
    return None if then == now else f"{where} was {then!r:.200}, now it is {now!r:.200}"
