"""``VectorizeWrapper``: the vector form of stateful wrappers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from coding_gym.branching.wrapper_state import copy_states, observe, put_states, wrappers_of
from coding_gym.envs.episode import Info, Timing
from coding_gym.errors import ConfigurationError

__all__ = ["VectorizeWrapper"]


class VectorizeWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """Applies a wrapper of single environments to a vector environment, in all autoreset modes.

    Each environment has its own wrapper, which processes the resets and steps of that environment, and is therefore reset with
    each of its episodes. Steps, rewards and infos equal those of a vector environment of wrapped environments. Gymnasium's own
    ``VectorizeTransformObservation`` and ``VectorizeTransformReward`` do the same for stateless wrappers, without support for
    ``SAME_STEP``.

    Args:
        env: The vector environment.
        wrapper: A wrapper that changes observations, rewards and infos, but neither actions nor the end of episodes.
        options: Keyword arguments of the wrapper, besides the environment.

    Raises:
        ConfigurationError: If the metadata of the vector environment have no autoreset mode.

    Example:
        >>> from gymnasium.wrappers import RecordEpisodeStatistics
        >>> envs = VectorizeWrapper(gym.make_vec("CodingEnv-v0", num_envs=2, max_episode_steps=2), RecordEpisodeStatistics)
        >>> observations, infos = envs.reset(seed=1)
        >>> for _ in range(2):
        ...     *_, infos = envs.step(["1", "2"])
        >>> infos["episode"]["l"]
        array([2, 2])
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], wrapper: Callable[..., gym.Env[Any, Any]], **options: Any) -> None:
        super().__init__(env)
        self._mode = env.metadata.get("autoreset_mode")
        if not isinstance(self._mode, AutoresetMode):
            message = (
                f"Expected metadata['autoreset_mode'] of the vector environment to be an AutoresetMode, got {self._mode!r}"
            )
            raise ConfigurationError(message)
        self._replay_envs = [_ReplayEnv(env) for _ in range(env.num_envs)]
        self._wrappers = [wrapper(replay_env, **options) for replay_env in self._replay_envs]
        self._ended = np.zeros(env.num_envs, np.bool_)
        self._latest: list[Any] = [None] * env.num_envs
        self._restored: dict[int, list[Any]] = {}
        space = self._wrappers[0].observation_space
        self._observes = space is not env.single_observation_space
        if self._observes:
            self.single_observation_space = space
            self.observation_space = batch_space(space, env.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        chosen = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        observations, batched = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        each = list(iterate(self.env.observation_space, observations))
        infos: Info = {}
        for index in chosen:
            infos = self._add_info(infos, self._begin(index, each[index], _info_of(batched, index)), index)
            self._ended[index] = False
        return self._observed(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        began = time.perf_counter()
        observations, rewards, terminated, truncated, batched = self.env.step(actions)
        timing = Timing(time.perf_counter() - began)
        done = list(iterate(self.action_space, actions))
        each = list(iterate(self.env.observation_space, observations))
        rewards = np.array(rewards, np.float64)
        infos: Info = {}
        for index in range(self.num_envs):
            info = _info_of(batched, index)
            if self._mode is AutoresetMode.NEXT_STEP and self._ended[index]:
                info = self._begin(index, each[index], info)
            else:
                replay_env = self._replay_envs[index]
                replay_env.last_timing = timing
                flags = bool(terminated[index]), bool(truncated[index])
                if "final_obs" in info:
                    final_observation, final_info = info.pop("final_obs"), info.pop("final_info", {})
                    replay_env.step_result = (final_observation, float(rewards[index]), *flags, final_info)
                    final = self._replay_step(index, done[index], rewards)
                    infos = self._add_info(infos, {"final_obs": self._latest[index], "final_info": final}, index)
                    info = self._begin(index, each[index], info)
                else:
                    replay_env.step_result = (each[index], float(rewards[index]), *flags, info)
                    info = self._replay_step(index, done[index], rewards)
            infos = self._add_info(infos, info, index)
        self._ended = np.logical_or(terminated, truncated)
        return self._observed(observations), rewards, terminated, truncated, infos

    def get_branch_state(self, index: int) -> list[Any]:
        """Return a copy of the state of one environment's wrapper; see ``coding_gym.branching``."""
        return copy_states(*wrappers_of(self._wrappers[index]))

    def set_branch_state(self, index: int, state: list[Any]) -> None:
        """Put the state of one environment's wrapper back."""
        put_states(*wrappers_of(self._wrappers[index]), state)
        self._ended[index] = False
        self._restored[index] = state

    def observe_restored(self, observations: Any) -> Any:
        """Return the observations of all environments, some of which were restored."""
        each = list(iterate(self.env.observation_space, observations))
        for index, state in self._restored.items():
            wrappers, replay_env = wrappers_of(self._wrappers[index])
            self._latest[index] = each[index]
            for wrapper in wrappers:
                self._latest[index] = observe(wrapper, self._latest[index])
            put_states(wrappers, replay_env, state)
        self._restored.clear()
        return self._observed(observations)

    def _begin(self, index: int, observation: Any, info: Info) -> Info:
        """Replay the reset of an environment through its wrapper."""
        self._replay_envs[index].reset_result = (observation, info)
        self._latest[index], info = self._wrappers[index].reset()
        return info

    def _replay_step(self, index: int, action: Any, rewards: NDArray[np.float64]) -> Info:
        """Replay a step of an environment through its wrapper."""
        self._latest[index], rewards[index], _, _, info = self._wrappers[index].step(action)
        return info

    def _observed(self, observations: Any) -> Any:
        if not self._observes:
            return observations
        space = self.single_observation_space
        empty: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, self._latest, empty)


class _ReplayEnv(gym.Env[Any, Any]):
    """Replays the resets and steps of one environment of a vector environment.

    Args:
        env: The vector environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self.reset_result: tuple[Any, Info] = (None, {})
        self.step_result: tuple[Any, float, bool, bool, Info] = (None, 0.0, False, False, {})
        self.last_timing: Timing | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        return self.reset_result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        return self.step_result


def _info_of(infos: Info, index: int) -> Info:
    """Return the info of one environment, the inverse of ``VectorEnv._add_info``."""
    info: Info = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or (mask is not None and not mask[index]):
            continue
        if isinstance(values, dict):
            info[key] = _info_of(values, index)
        else:
            value = values[index]
            info[key] = bool(value) if isinstance(value, np.bool_) else value
    return info
