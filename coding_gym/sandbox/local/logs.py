"""Local sandboxes of this user, found by their runtime directories, and their logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coding_gym.sandbox.ownership import OwnerProcess, runtime_directories
from coding_gym.sandbox.process_tree import LOG_FILE

__all__ = ["LocalLog", "local_logs"]


@dataclass(frozen=True)
class LocalLog:
    """Log of a local sandbox.

    Attributes:
        name: Name of its directory.
        owner: The process that started it.
        path: The log.
    """

    name: str
    owner: OwnerProcess
    path: Path

    @property
    def started(self) -> datetime:
        """When the sandbox was started."""
        return datetime.fromtimestamp((self.path.parent / "owner").stat().st_mtime, UTC)


def local_logs() -> Iterator[LocalLog]:
    """Yield the logs of the local sandboxes that exist; those whose owner is dead are removed by the next sandbox."""
    for directory, owner in runtime_directories():
        if (directory / LOG_FILE).is_file():
            yield LocalLog(directory.name, owner, directory / LOG_FILE)
