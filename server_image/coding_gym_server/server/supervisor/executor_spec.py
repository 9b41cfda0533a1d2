"""Specification of an executor."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym_server.server.supervisor.shared_files import SharedFiles
from coding_gym_server.worker.backends.registry import runs_in_worker

__all__ = ["ExecutorSpec"]


@dataclass(frozen=True, kw_only=True)
class ExecutorSpec:
    """Properties of an executor that are fixed when it starts.

    Attributes:
        backend: Name of the backend that executes the cells.
        shared: Files shared with other executors, or None.
        may_be_root: Whether programs are root unless files are shared.
    """

    backend: str = "python"
    shared: SharedFiles | None = None
    may_be_root: bool = False

    @property
    def is_root(self) -> bool:
        """Whether programs are root. The executor is then for one episode, because they may change any file."""
        return self.may_be_root and self.shared is None

    @property
    def can_branch(self) -> bool:
        """Whether copies of a worker, and of the files, are copies of the session."""
        return runs_in_worker(self.backend) and self.shared is None and not self.is_root
