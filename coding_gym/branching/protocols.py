"""Protocols of environments and wrappers whose state can be cloned, by the names of the Arcade Learning Environment."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["CloneableEnv", "ObservesRestored", "StateSnapshot", "StatefulVectorWrapper", "StatefulWrapper"]


class StateSnapshot(Protocol):
    """A state of an environment, to restore any number of times until it is released.

    A snapshot may also have ``nbytes``, its size in bytes.
    """

    def release(self) -> None:
        """Free what the snapshot holds. It cannot be restored afterwards."""


class CloneableEnv(Protocol):
    """An environment that clones and restores its state."""

    def clone_state(self) -> StateSnapshot:
        """Return a snapshot of the current state, random number generators included. The episode continues unaffected."""
        ...

    def restore_state(self, snapshot: Any, /, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Continue from a snapshot, also after the episode ended.

        Args:
            snapshot: What ``clone_state`` of this environment returned.
            seed: Seed for the random number generators; None continues with their state in the snapshot.

        Returns:
            An observation and its info.
        """
        ...


@runtime_checkable
class StatefulWrapper(Protocol):
    """A wrapper that copies its state itself. The attributes of any other wrapper are copied."""

    def get_branch_state(self) -> Any:
        """Return a copy of the state, which later steps do not change."""
        ...

    def set_branch_state(self, state: Any, /) -> None:
        """Continue from a state that ``get_branch_state`` returned.

        Args:
            state: The state, of this wrapper or of the one that this is the fork of. It is put back any number of times: copy
                whatever steps modify.
        """
        ...


@runtime_checkable
class StatefulVectorWrapper(Protocol):
    """A vector wrapper that copies the state that belongs to one environment.

    Of any other vector wrapper, the rows of arrays with one row per environment are copied.
    """

    def get_branch_state(self, index: int, /) -> Any:
        """Return a copy of the state of one environment, which later steps do not change."""
        ...

    def set_branch_state(self, index: int, state: Any, /) -> None:
        """Continue, in one environment, from a state that ``get_branch_state`` returned for it."""
        ...


@runtime_checkable
class ObservesRestored(Protocol):
    """A wrapper that changes observations, but is not an ``ObservationWrapper``."""

    def observe_restored(self, observation: Any, /) -> Any:
        """Return the wrapper's observation for one that the wrapped environment returned for a restored state.

        It is called after ``set_branch_state``; what it changes in the wrapper is undone. In a vector wrapper, observations are
        those of all environments.
        """
        ...
