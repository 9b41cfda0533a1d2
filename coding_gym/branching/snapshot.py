"""``WrappedSnapshot``: the state of an environment and of its wrappers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from coding_gym.branching.protocols import StateSnapshot
from coding_gym.errors import ConfigurationError

__all__ = ["WrappedSnapshot"]


class WrappedSnapshot:
    """State of an environment and of its wrappers. Created by ``clone_state`` and ``clone_states``.

    Args:
        base: The snapshot of the environment inside of the wrappers.
        wrappers: The wrappers, the innermost first.
        states: Their states.
        generator: State of the environment's ``np_random``; None if it has none.

    Attributes:
        base: The snapshot of the environment inside of the wrappers.
        states: States of the wrappers, the innermost first.
        generator: State of the environment's ``np_random``; None if it has none.
    """

    def __init__(
        self,
        base: StateSnapshot,
        wrappers: Sequence[object],
        states: Sequence[Any],
        generator: Mapping[str, Any] | None = None,
    ) -> None:
        self.base = base
        self.states = tuple(states)
        self.generator = generator
        self._kinds = [type(wrapper) for wrapper in wrappers]

    @property
    def nbytes(self) -> int:
        """Size of the environment's snapshot in bytes; 0 if it does not have one."""
        return int(getattr(self.base, "nbytes", 0))

    def check_wrappers(self, wrappers: Sequence[object]) -> None:
        """Raise if the snapshot is not of these wrappers.

        Raises:
            ConfigurationError: If it is of others.
        """
        kinds = [type(wrapper) for wrapper in wrappers]
        if kinds != self._kinds:
            message = f"Expected a snapshot of an environment with {_names(kinds)}, got one with {_names(self._kinds)}"
            raise ConfigurationError(message)

    def release(self) -> None:
        """Release the environment's snapshot."""
        self.base.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()


def _names(kinds: Sequence[type]) -> str:
    return f"the wrappers {', '.join(kind.__name__ for kind in kinds)}" if kinds else "no wrappers"
