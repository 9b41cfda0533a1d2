"""What every backend offers to the worker, and what the worker offers to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

from coding_gym_server.backends.output import Output
from coding_gym_server.environment import environment
from coding_gym_server.isolation.confinement import Confinement

__all__ = ["ExecutorBackend"]


class ExecutorBackend(ABC):
    """Executes the cells of one session, in the worker process, with stdout and stderr on descriptors 1 and 2.

    A backend is made once per worker, after the fork. It prints what a cell prints, tracebacks included, to ``sys.stdout`` and
    ``sys.stderr``, and lets ``KeyboardInterrupt`` end a cell. Of a rich cell it reports values, displays and the exception to
    ``output`` instead.

    Args:
        output: Takes what is more than text.
        authorized_imports: Modules that a backend with a whitelist admits beyond its own.

    Attributes:
        confinement: What the session is confined to; set before its first episode.
    """

    confinement = Confinement()

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        self.output = output
        self.authorized_imports = authorized_imports

    @classmethod
    def prepare(cls, name: str) -> None:
        """Import, in the zygote, what every worker needs beyond the module of the class.

        It must neither start a thread nor read anything of a user's.

        Args:
            name: The name that the backend was chosen by.

        Raises:
            ImportError: A package that it needs is not installed.
        """
        _ = name

    @classmethod
    def ports_needed(cls) -> int:
        """Return how many TCP ports a session needs, for a program that speaks nothing else; see ``Confinement.ports``."""
        return 0

    @abstractmethod
    def configure(self, *, show_value: bool) -> None:
        """Take the settings of an episode, before its first cell.

        Args:
            show_value: Whether the value of a cell's last expression is shown.
        """

    @abstractmethod
    def execute(self, code: str) -> int:
        """Run a cell to its end and return its exit code: 0 ok, 1 an exception, n of ``sys.exit(n)``, 130 interrupted."""

    def environment(self, variables: Mapping[str, str]) -> AbstractContextManager[None]:
        """Set environment variables for one cell, and leave them afterwards as they were before."""
        return environment(variables)
