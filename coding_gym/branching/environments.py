"""Clones, restores and forks environments together with their wrappers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs, seeding

from coding_gym.branching.protocols import StatefulWrapper
from coding_gym.branching.snapshot import WrappedSnapshot
from coding_gym.branching.wrapper_state import SHARED, copy_states, observe, put_states, split
from coding_gym.errors import ConfigurationError

__all__ = ["clone_state", "fork", "restore_state"]


def clone_state(env: gym.Env[Any, Any], *, replay: bool | None = None) -> WrappedSnapshot:
    """Return a snapshot of an environment and of its wrappers; the episode continues unchanged.

    The environment is the outermost one with ``clone_state`` and ``restore_state``. Of the wrappers around it, those with
    ``get_branch_state`` and ``set_branch_state`` (see ``StatefulWrapper``) are asked for their state; of the others, the
    attributes are copied (``copy.deepcopy``), except spaces, functions, methods, classes and modules. The state of the
    environment's ``np_random`` is copied as well.

    Args:
        env: The environment, in the middle of an episode or after a reset.
        replay: As for ``CodingEnv.clone_state``; None is the environment's own default.

    Raises:
        ConfigurationError: If neither the environment nor one inside of it can be cloned.
        SnapshotError: If an attribute of a wrapper cannot be copied, or the environment refuses.

    Example:
        >>> env = gym.make("CodingEnv-v0", max_episode_steps=2)
        >>> observation, info = env.reset(seed=1)
        >>> with clone_state(env) as snapshot:
        ...     for _ in range(2):
        ...         observation, info = restore_state(env, snapshot)
        ...         [env.step("1")[3] for _ in range(2)]
        [False, True]
        [False, True]
        >>> env.close()
    """
    wrappers, base = split(env, "clone_state", "restore_state")
    states = copy_states(wrappers, base)
    generator = _generator(base)
    drawn = _state_of(generator)
    options = {} if replay is None else {"replay": replay}
    return WrappedSnapshot(base.clone_state(**options), wrappers, states, drawn)


def restore_state(
    env: gym.Env[Any, Any], snapshot: WrappedSnapshot, *, seed: int | None = None, replay: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Continue from a snapshot, with the wrappers in the state that they were in.

    Args:
        env: The environment that the snapshot was taken of.
        snapshot: The snapshot.
        seed: As for ``CodingEnv.restore_state``; it seeds ``np_random`` as well.
        replay: As for ``CodingEnv.restore_state``. The wrappers do not take part in a replay: their states are put back
            afterwards.

    Returns:
        The observation of the environment, as changed by its wrappers: by ``observation`` of an ``ObservationWrapper``, by
        ``observe_restored`` of one that has it (see ``ObservesRestored``); a ``FrameStackObservation`` returns its last frames.
        The info is that of the environment.

    Raises:
        ConfigurationError: If the environment has other wrappers than the snapshot.
        SnapshotError: If the environment refuses.
    """
    wrappers, base = split(env, "clone_state", "restore_state")
    snapshot.check_wrappers(wrappers)
    options: dict[str, Any] = {"replay": True} if replay else {}
    generator = _generator(base)
    if seed is not None and generator is not None and not replay:
        generator.bit_generator.state = seeding.np_random(seed)[0].bit_generator.state
    elif snapshot.generator is not None and generator is not None:
        generator.bit_generator.state = copy.deepcopy(snapshot.generator)
    observation, info = base.restore_state(snapshot.base, seed=seed, **options)
    drawn = _state_of(generator)
    put_states(wrappers, base, snapshot.states)
    for wrapper in wrappers:
        observation = observe(wrapper, observation)
    # Observing is not part of the episode: neither frames that are stacked by it, nor numbers that are drawn.
    put_states(wrappers, base, snapshot.states)
    if generator is not None and drawn is not None:
        generator.bit_generator.state = drawn
    return observation, info


def fork(env: gym.Env[Any, Any], n: int, seeds: Sequence[int | None] | None = None) -> list[gym.Env[Any, Any]]:
    """Return environments that continue from the state of this one, each with its own wrappers in the same state.

    A wrapper that records its constructor's arguments (``gymnasium.utils.RecordConstructorArgs``) is made again from them;
    of any other, a shallow copy is made. The state is copied as by ``clone_state``.

    Args:
        env: The environment; it, or one inside of it, has ``fork``. It continues unchanged.
        n: Number of forks.
        seeds: A seed or None for each fork; see ``CodingEnv.fork``.

    Raises:
        ConfigurationError: If neither the environment nor one inside of it has ``fork``, or a wrapper cannot be made again.
        SnapshotError: If an attribute of a wrapper cannot be copied, or the environment refuses.
    """
    wrappers, base = split(env, "fork")
    states = copy_states(wrappers, base)
    generator = _generator(base)
    forks: list[Any] = base.fork(n, seeds)
    try:
        for index, forked in enumerate(forks):
            target = _generator(forked)
            if target is not None and generator is not None and (seeds is None or seeds[index] is None):
                target.bit_generator.state = copy.deepcopy(generator.bit_generator.state)
            forks[index] = _wrap_again(forked, wrappers, base, states)
    except BaseException:
        for forked in forks:
            with contextlib.suppress(Exception):
                forked.close()
        raise
    return forks


def _wrap_again(fork: Any, wrappers: Sequence[Any], base: Any, states: Sequence[Any]) -> Any:
    """Wrap a fork of ``base`` like it."""
    twins: dict[int, Any] = {id(base): fork}
    outermost = fork
    for wrapper in wrappers:
        outermost = twins[id(wrapper)] = _make_again(wrapper, outermost, [base, *wrappers])
    for wrapper, state in zip(wrappers, states, strict=True):
        twin = twins[id(wrapper)]
        if isinstance(twin, StatefulWrapper):
            twin.set_branch_state(state)
            continue
        copied = {name: value for name, value in state.items() if not isinstance(value, SHARED)}
        # What refers to the original environment or its wrappers refers to their twins in the copy.
        vars(twin).update(copy.deepcopy(copied, dict(twins)))
    return outermost


def _make_again(wrapper: Any, env: Any, chain: Sequence[Any]) -> Any:
    kind = type(wrapper)
    if isinstance(wrapper, RecordConstructorArgs):
        try:
            return kind(env, **copy.copy(wrapper._saved_kwargs))
        except TypeError as error:
            message = f"{kind.__name__} cannot be made again from the arguments that it recorded: {error}"
            raise ConfigurationError(message) from error
    twin = copy.copy(wrapper)
    twin.env = env
    for name, value in vars(twin).items():
        if isinstance(value, MethodType) and value.__self__ is wrapper:
            setattr(twin, name, MethodType(value.__func__, twin))
        elif isinstance(value, FunctionType) and any(_holds(value, each) for each in chain):
            message = (
                f"{kind.__name__} cannot be copied for a fork, as its function {name!r} refers to the original: "
                "derive the class from RecordConstructorArgs"
            )
            raise ConfigurationError(message)
    return twin


def _holds(function: FunctionType, value: Any) -> bool:
    """Return whether a closure has a variable with this value."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            if cell.cell_contents is value:
                return True
    return False


def _state_of(generator: np.random.Generator | None) -> Mapping[str, Any] | None:
    return None if generator is None else copy.deepcopy(generator.bit_generator.state)


def _generator(env: Any) -> np.random.Generator | None:
    generator = getattr(env, "np_random", None)
    return generator if isinstance(generator, np.random.Generator) else None
