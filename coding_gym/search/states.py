"""Environments whose state can be cloned and restored, by the names of the Arcade Learning Environment."""

from __future__ import annotations

from typing import Any, Protocol, cast

from coding_gym.errors import ConfigurationError

__all__ = ["CloneableEnv", "StateSnapshot", "find_cloneable"]


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


def find_cloneable(env: Any) -> CloneableEnv:
    """Return what clones the states of an environment: itself if it can, otherwise ``env.unwrapped``.

    Raises:
        ConfigurationError: If neither has ``clone_state`` and ``restore_state``.
    """
    for candidate in (env, getattr(env, "unwrapped", None)):
        if callable(getattr(candidate, "clone_state", None)) and callable(getattr(candidate, "restore_state", None)):
            return cast(CloneableEnv, candidate)
    message = f"Expected an environment that has clone_state and restore_state, or whose env.unwrapped has them, got {env!r}"
    raise ConfigurationError(message)
