"""Clones and restores vector environments together with their wrappers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorObservationWrapper, VectorWrapper
from numpy.typing import NDArray

from coding_gym.branching.protocols import ObservesRestored, StatefulVectorWrapper
from coding_gym.branching.snapshot import WrappedSnapshot
from coding_gym.branching.wrapper_state import copy_attributes, put_attributes, split
from coding_gym.errors import SnapshotError

__all__ = ["clone_states", "restore_states"]


def clone_states(
    envs: VectorEnv[Any, Any, Any], mask: NDArray[np.bool_] | None = None, *, replay: bool | None = None
) -> list[WrappedSnapshot | None]:
    """Return a snapshot of each environment of a vector environment, with the state that its wrappers have of it.

    Of the wrappers, those with ``get_branch_state`` and ``set_branch_state`` (see ``StatefulVectorWrapper``) are asked; of the
    others, the rows of arrays with one row per environment are copied. What a wrapper has of all environments, such as the
    statistics of ``NormalizeObservation``, continues.

    Args:
        envs: The vector environment.
        mask: As for ``CodingVectorEnv.clone_states``.
        replay: As for ``CodingEnv.clone_state``; None is the environment's own default.

    Raises:
        ConfigurationError: If neither the vector environment nor one inside of it can be cloned.
        SnapshotError: If the state of a wrapper cannot be copied, or an environment refuses.
    """
    wrappers, base = split(envs, "clone_states", "restore_states", kind=VectorWrapper)
    chosen = range(envs.num_envs) if mask is None else np.flatnonzero(mask).tolist()
    states = {index: [_get_state(wrapper, index) for wrapper in wrappers] for index in chosen}
    options = {} if replay is None else {"replay": replay}
    return [
        None if snapshot is None else WrappedSnapshot(snapshot, wrappers, states[index])
        for index, snapshot in enumerate(base.clone_states(mask, **options))
    ]


def restore_states(
    envs: VectorEnv[Any, Any, Any],
    snapshots: Sequence[WrappedSnapshot | None],
    *,
    seeds: list[int | None] | None = None,
    replay: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Let environments continue from snapshots, with the state that wrappers had of them; those with None continue as they are.

    Args:
        envs: The vector environment that the snapshots were taken of.
        snapshots: A snapshot or None for each environment.
        seeds: As for ``CodingVectorEnv.restore_states``.
        replay: As for ``CodingEnv.restore_state``.

    Returns:
        The observations of all environments, as changed by the wrappers: by ``observations`` of a ``VectorObservationWrapper``,
        and by ``observe_restored`` of one that has it. The infos are those of the vector environment.

    Raises:
        ConfigurationError: If the vector environment has other wrappers than a snapshot, or the number of snapshots or seeds is
            not that of the environments.
        SnapshotError: If one of them cannot be restored. Environments before it have been restored.
    """
    wrappers, base = split(envs, "clone_states", "restore_states", kind=VectorWrapper)
    restored = {index: snapshot for index, snapshot in enumerate(snapshots) if snapshot is not None}
    for snapshot in restored.values():
        snapshot.check_wrappers(wrappers)
    bases = [None if snapshot is None else snapshot.base for snapshot in snapshots]
    observations, infos = base.restore_states(bases, seeds=seeds, replay=replay)
    for position, wrapper in enumerate(wrappers):
        for index, snapshot in restored.items():
            _set_state(wrapper, index, snapshot.states[position])
        observations = _observe(wrapper, observations)
    return observations, infos


def _get_state(wrapper: Any, index: int) -> Any:
    if isinstance(wrapper, StatefulVectorWrapper):
        return wrapper.get_branch_state(index)
    return {name: copy.deepcopy(array[index]) for name, array in _arrays(wrapper).items()}


def _set_state(wrapper: Any, index: int, state: Any) -> None:
    if isinstance(wrapper, StatefulVectorWrapper):
        wrapper.set_branch_state(index, state)
        return
    for name, array in _arrays(wrapper).items():
        if name in state:
            array[index] = copy.deepcopy(state[name])


def _arrays(wrapper: Any) -> dict[str, NDArray[Any]]:
    """Return the attributes that are arrays with one row per environment."""
    return {
        name: value
        for name, value in vars(wrapper).items()
        if isinstance(value, np.ndarray) and value.ndim and len(value) == wrapper.num_envs
    }


def _observe(wrapper: Any, observations: Any) -> Any:
    if isinstance(wrapper, ObservesRestored):
        return wrapper.observe_restored(observations)
    if not isinstance(wrapper, VectorObservationWrapper):
        return observations
    # Observing is not part of the episode: statistics must not count these observations.
    memo = {id(env): env for env in (wrapper, wrapper.env)}
    reasons: list[str] = []
    state = copy_attributes(wrapper, dict(memo), reasons)
    if reasons:
        raise SnapshotError(reasons)
    observations = wrapper.observations(observations)
    put_attributes(wrapper, state, dict(memo))
    return observations
