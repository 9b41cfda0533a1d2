"""Specification of an executor."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym_server.server.supervisor.shared_files import SharedFiles

__all__ = ["ExecutorSpec"]

_BRANCHING_BACKENDS = frozenset({"python", "notebook", "restricted", "restrictedpython", "smolagents"})
"""Backends that execute cells in the worker."""


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
        return self.backend in _BRANCHING_BACKENDS and self.shared is None and not self.is_root
