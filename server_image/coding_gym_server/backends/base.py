"""What every backend offers to the worker."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["ExecutorBackend"]


class ExecutorBackend(ABC):
    """Executes the cells of one session, in the worker process, with stdout and stderr on descriptors 1 and 2.

    A backend is made once per worker, after the fork. It prints what a cell prints, tracebacks included, to ``sys.stdout`` and
    ``sys.stderr``, and lets ``KeyboardInterrupt`` end a cell.
    """

    @abstractmethod
    def configure(self, *, show_value: bool) -> None:
        """Take the settings of an episode, before its first cell.

        Args:
            show_value: Whether the value of a cell's last expression is shown.
        """

    @abstractmethod
    def execute(self, code: str) -> int:
        """Run a cell to its end and return its exit code: 0 ok, 1 an exception, n of ``sys.exit(n)``, 130 interrupted."""
