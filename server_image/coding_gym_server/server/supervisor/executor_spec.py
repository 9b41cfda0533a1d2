"""Specification of an executor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ExecutorSpec"]


@dataclass(frozen=True, kw_only=True)
class ExecutorSpec:
    """Properties of an executor that are fixed when it starts.

    Attributes:
        backend: Name of the backend that executes the cells.
        shared: Directory shared with other executors, or None.
    """

    backend: str = "python"
    shared: Path | None = None
