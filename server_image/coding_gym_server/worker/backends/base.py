"""Interface between the worker and its backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

from coding_gym_server.linux.environ import temporary_environ
from coding_gym_server.worker.backends.output import Output

__all__ = ["ExecutorBackend"]


class ExecutorBackend(ABC):
    """Executes the cells of one session, in the worker process, with stdout and stderr on descriptors 1 and 2.

    One backend is created per worker, after the fork. It prints the output of a cell, including tracebacks, to ``sys.stdout``
    and ``sys.stderr``, and ends a cell on ``KeyboardInterrupt``. For a rich cell, it reports values, display output and the
    exception to ``output`` instead.

    Args:
        output: Receives rich results and exceptions.
        authorized_imports: Modules that a backend with an import allowlist permits in addition to its own.
    """

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        self.output = output
        self.authorized_imports = authorized_imports

    @classmethod
    def prepare(cls, name: str) -> None:
        """Import, in the zygote, the modules that every worker needs in addition to the module of the class.

        An implementation must neither start a thread nor read any user data.

        Args:
            name: The name under which the backend was requested.

        Raises:
            ImportError: If a required package is not installed.
        """
        _ = name

    @abstractmethod
    def configure(self, *, show_value: bool) -> None:
        """Apply the settings of an episode, before its first cell.

        Args:
            show_value: Whether the value of the last expression of a cell is shown.
        """

    @abstractmethod
    def execute(self, code: str) -> int:
        """Execute a cell and return its exit code.

        Returns:
            0 on success, 1 for an exception, n for ``sys.exit(n)``, 130 for an interrupt.
        """

    def environment(self, variables: Mapping[str, str]) -> AbstractContextManager[None]:
        """Set environment variables for one cell, and restore the previous values afterwards."""
        return temporary_environ(variables)
