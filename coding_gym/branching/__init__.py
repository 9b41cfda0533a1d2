"""Branching of wrapped environments: snapshots and forks that keep the state of the wrappers."""

from __future__ import annotations

from coding_gym.branching.environments import clone_state, fork, restore_state
from coding_gym.branching.protocols import (
    CloneableEnv,
    ObservesRestored,
    StatefulVectorWrapper,
    StatefulWrapper,
    StateSnapshot,
)
from coding_gym.branching.snapshot import WrappedSnapshot
from coding_gym.branching.vector import clone_states, restore_states

__all__ = [
    "CloneableEnv",
    "ObservesRestored",
    "StateSnapshot",
    "StatefulVectorWrapper",
    "StatefulWrapper",
    "WrappedSnapshot",
    "clone_state",
    "clone_states",
    "fork",
    "restore_state",
    "restore_states",
]
