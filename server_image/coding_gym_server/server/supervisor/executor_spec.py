"""Specification of an executor."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym_server.server.supervisor.shared_files import SharedFiles

__all__ = ["ExecutorSpec"]


@dataclass(frozen=True, kw_only=True)
class ExecutorSpec:
    """Properties of an executor that are fixed when it starts.

    Attributes:
        backend: Name of the backend that executes the cells.
        shared: Files shared with other executors, or None.
    """

    backend: str = "python"
    shared: SharedFiles | None = None
