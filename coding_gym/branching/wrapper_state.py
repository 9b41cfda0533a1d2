"""Copies the state of wrappers, and puts it back."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.vector.utils import concatenate
from gymnasium.wrappers import FrameStackObservation

from coding_gym.branching.protocols import ObservesRestored, StatefulWrapper
from coding_gym.errors import ConfigurationError, SnapshotError

__all__ = ["copy_attributes", "copy_states", "observe", "put_attributes", "put_states", "split", "wrappers_of"]

_CONSTANT = {"env", "_saved_kwargs", "_cached_spec", "_metadata"} | {
    f"_{prefix}{kind}_space" for prefix in ("", "single_") for kind in ("action", "observation")
}
"""Attributes of Gymnasium's base classes that are the same in all branches."""

SHARED = (gym.Space, FunctionType, BuiltinFunctionType, MethodType, ModuleType, type)
"""Types of attributes that are kept, but not copied."""


def wrappers_of(env: Any, kind: type = gym.Wrapper) -> tuple[list[Any], Any]:
    """Return the wrappers of an environment, the innermost first, and the environment inside of them."""
    wrappers = []
    while isinstance(env, kind):
        wrappers.append(env)
        env = env.env  # type: ignore[attr-defined]
    return wrappers[::-1], env


def split(env: Any, *methods: str, kind: type = gym.Wrapper) -> tuple[list[Any], Any]:
    """Return the wrappers around the outermost environment with these methods, the innermost first, and that environment.

    Raises:
        ConfigurationError: If there is none.
    """
    wrappers: list[Any] = []
    base = env
    while not all(callable(getattr(base, method, None)) for method in methods):
        if not isinstance(base, kind):
            message = f"Expected an environment that has {' and '.join(methods)}, itself or inside of its wrappers, got {env!r}"
            raise ConfigurationError(message)
        wrappers.append(base)
        base = base.env  # type: ignore[attr-defined]
    return wrappers[::-1], base


def copy_states(wrappers: Sequence[Any], base: Any) -> list[Any]:
    """Return copies of the states of wrappers.

    Args:
        wrappers: The wrappers of an environment, the innermost first.
        base: The environment inside of them.

    Raises:
        SnapshotError: If an attribute cannot be copied.
    """
    memo = _same(wrappers, base)
    reasons: list[str] = []
    states = [
        wrapper.get_branch_state() if isinstance(wrapper, StatefulWrapper) else copy_attributes(wrapper, memo, reasons)
        for wrapper in wrappers
    ]
    if reasons:
        raise SnapshotError(reasons)
    return states


def put_states(wrappers: Sequence[Any], base: Any, states: Sequence[Any]) -> None:
    """Put states back that ``copy_states`` has returned for the same wrappers."""
    memo = _same(wrappers, base)
    for wrapper, state in zip(wrappers, states, strict=True):
        if isinstance(wrapper, StatefulWrapper):
            wrapper.set_branch_state(state)
        else:
            put_attributes(wrapper, state, memo)


def copy_attributes(wrapper: Any, memo: dict[int, Any], reasons: list[str]) -> dict[str, Any]:
    """Return copies of the attributes of a wrapper.

    Args:
        wrapper: The wrapper.
        memo: As for ``copy.deepcopy``: what must not be copied, by id.
        reasons: Gets an entry for each attribute that cannot be copied.
    """
    copies = {}
    for name, value in vars(wrapper).items():
        if name not in _CONSTANT:
            try:
                copies[name] = _copy(value, memo)
            except Exception as error:  # noqa: BLE001 - any class may refuse, in any way
                reasons.append(
                    f"the attribute {name!r} of {type(wrapper).__name__} cannot be copied ({error}): "
                    "define get_branch_state and set_branch_state in the wrapper"
                )
    return copies


def put_attributes(wrapper: Any, state: Mapping[str, Any], memo: dict[int, Any]) -> None:
    """Give a wrapper copies of attributes, and no others besides those of Gymnasium's base classes."""
    attributes = {name: value for name, value in vars(wrapper).items() if name in _CONSTANT}
    attributes.update((name, _copy(value, memo)) for name, value in state.items())
    vars(wrapper).clear()
    vars(wrapper).update(attributes)


def observe(wrapper: Any, observation: Any) -> Any:
    """Return a wrapper's observation for that of a restored state. This may change the wrapper's state."""
    if isinstance(wrapper, ObservesRestored):
        return wrapper.observe_restored(observation)
    if isinstance(wrapper, FrameStackObservation):
        # Nothing is added to the stack: its last observation is that of the state.
        stack: Any = wrapper.stacked_obs
        return copy.deepcopy(concatenate(wrapper.env.observation_space, wrapper.obs_queue, stack))
    return wrapper.observation(observation) if isinstance(wrapper, gym.ObservationWrapper) else observation


def _same(wrappers: Sequence[Any], base: Any) -> dict[int, Any]:
    return {id(env): env for env in (*wrappers, *_chain(base))}


def _chain(env: Any) -> list[Any]:
    inner, last = wrappers_of(env)
    return [*inner, last]


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    return value if isinstance(value, SHARED) else copy.deepcopy(value, memo)
