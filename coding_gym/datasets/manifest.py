"""Dataset manifest, the file ``manifest.json``: the arguments and versions that a dataset was collected with."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import msgspec

from coding_gym._version import __version__
from coding_gym.errors import DatasetError
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["Arguments", "CollectionRun", "Manifest", "Versions", "difference"]

_FILE = "manifest.json"
_LIBRARIES = ("gymnasium", "numpy")


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments that determine the contents of the episodes: they must be the same to resume or extend a dataset.

    Attributes:
        env: Environment id, or the qualified name of the callable that makes the environment.
        env_options: Keyword arguments of the environment.
        wrappers: Qualified names of the wrappers, the innermost first.
        policy: Description of the policy, as returned by ``Policy.describe``.
        seed: Seed of the dataset.
        max_steps: Number of actions after which an episode is truncated.
        reset_options: SHA-256 hex digest of the reset options of all episodes; empty if there are none.
        tasks: Task ids, assigned to the episodes round-robin.
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
    """Software versions of a collection run.

    Attributes:
        coding_gym: Version of this package.
        python: Python version of the host.
        libraries: Versions of libraries on the host, by name.
        sandbox: Description of the sandboxes: provider and image. Empty if the environment is not part of this package.
    """

    coding_gym: str
    python: str
    libraries: dict[str, str] = {}
    sandbox: str = ""

    @classmethod
    def current(cls, *, sandbox: str = "") -> Self:
        """Return the versions on this host."""
        libraries = {name: metadata.version(name) for name in _LIBRARIES}
        return cls(coding_gym=__version__, python=platform.python_version(), libraries=libraries, sandbox=sandbox)


class CollectionRun(msgspec.Struct, frozen=True, kw_only=True):
    """One call of ``collect``; a dataset has several if its collection was resumed or extended.

    Attributes:
        started: Start time in UTC, in ISO 8601 format.
        had: Number of episodes that the dataset already contained.
        sessions: Maximum number of concurrent episodes.
        versions: Software versions.
    """

    started: str
    had: int
    sessions: int
    versions: Versions

    @classmethod
    def starting(cls, *, had: int, sessions: int, sandbox: str) -> Self:
        """Return a run that starts now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(started=now, had=had, sessions=sessions, versions=Versions.current(sandbox=sandbox))


class Manifest(msgspec.Struct, kw_only=True):
    """Manifest of a dataset.

    Attributes:
        arguments: Arguments that determine the contents of the episodes.
        runs: Calls of ``collect`` that ran episodes.
        episodes: Requested number of episodes.
        sha256: SHA-256 hex digest of the concatenated episode hashes; None until the dataset is complete.
    """

    arguments: Arguments
    runs: list[CollectionRun] = []
    episodes: int = 0
    sha256: str | None = None

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the manifest of a directory, or None if there is none.

        Raises:
            DatasetError: If the manifest is corrupt, cannot be read, or was written by an incompatible version.
        """
        try:
            return msgspec.json.decode((directory / _FILE).read_bytes(), type=cls)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            message = f"The manifest {directory / _FILE} cannot be read: {error.strerror}. Check its permissions"
            raise DatasetError(message) from error
        except DECODING_ERRORS as error:
            message = (
                f"{directory / _FILE} is not a manifest of a dataset, or was written by another version of coding-gym: {error}"
            )
            raise DatasetError(message) from error

    def write(self, directory: Path) -> None:
        """Write the manifest, replacing an existing one atomically."""
        new = directory / f".{_FILE}"
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(directory / _FILE)


def difference(found: Arguments, expected: Arguments) -> str | None:
    """Return a description of the first difference between two sets of arguments, or None if they are equal."""
    # Compare the decoded form, in which tuples are lists.
    recorded, current = (msgspec.json.decode(msgspec.json.encode(arguments)) for arguments in (found, expected))
    return _first_difference(recorded, current, "")


def _first_difference(recorded: Any, current: Any, where: str) -> str | None:
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        for name in [*recorded, *(name for name in current if name not in recorded)]:
            inside = f"{where}.{name}" if where else str(name)
            found = _first_difference(recorded.get(name), current.get(name), inside)
            if found is not None:
                return found
        return None
    return None if recorded == current else f"{where} was {recorded!r:.200}, now it is {current!r:.200}"
