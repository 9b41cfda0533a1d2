"""``SB3VecEnv``: adapter from Gymnasium vector environments to Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from numpy.typing import NDArray

from coding_gym.errors import ConfigurationError

try:
    from stable_baselines3.common.env_util import is_wrapped
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn
except ImportError as error:
    message = "coding_gym_trainers.sb3 requires Stable-Baselines3: pip install 'coding-gym[sb3]'"
    raise ImportError(message) from error

__all__ = ["SB3VecEnv"]


class SB3VecEnv(VecEnv):
    """Adapter from a Gymnasium vector environment to the ``VecEnv`` API: ``PPO(policy, SB3VecEnv(envs))``.

    An episode that ends is reset in the same step: the observation is the first of the next episode, and the info is that of
    the final step, with ``terminal_observation``. If the episode was truncated and not terminated, ``TimeLimit.truncated`` is
    true, and algorithms bootstrap from the value of the terminal observation. This includes infrastructure errors, which are
    neither success nor failure.

    If ``info`` has ``solved``, the final info of an episode has it as ``is_success``, too, except after infrastructure errors;
    with a ``VecMonitor`` wrapper, algorithms then log a success rate.

    Args:
        env: ``CodingVectorEnv`` or another ``SyncVectorEnv``, made with ``autoreset_mode="SameStep"``, in wrappers that convert
            text observations to arrays and text actions to numbers.

    Attributes:
        infrastructure_failures: Number of episodes lost to infrastructure errors so far.

    Raises:
        ConfigurationError: If the autoreset mode differs, observations or actions contain text, or ``env`` is not a
            ``SyncVectorEnv``.

    Example:
        >>> envs = gym.make_vec("CodingEnv-v0", num_envs=2, autoreset_mode="SameStep", screen=None)
        >>> envs = BytesObservation(SnippetActions(envs, ["x = 1", "print(x)"]))
        >>> model = PPO("MultiInputPolicy", SB3VecEnv(envs))  # doctest: +SKIP
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            message = f'Stable-Baselines3 requires resets in the same step: pass autoreset_mode="SameStep", not {mode}'
            raise ConfigurationError(message)
        if not isinstance(env.unwrapped, SyncVectorEnv):
            message = f"Expected a CodingVectorEnv or another SyncVectorEnv, got {env.unwrapped}"
            raise ConfigurationError(message)
        for kind, space, hint in (
            ("observations", env.single_observation_space, "BytesObservation"),
            ("actions", env.single_action_space, "SnippetActions or TokenActions"),
        ):
            if texts := _texts_in(space):
                message = f"Stable-Baselines3 requires arrays, but {kind} have text: {texts}. Wrap it in {hint}, for example"
                raise ConfigurationError(message)
        self.env = env
        self.infrastructure_failures = 0
        self._list_env = DictInfoToList(env)
        self._envs: Sequence[gym.Env[Any, Any]] = env.unwrapped.envs
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> VecEnvObs:
        """Reset all environments, with the seeds and options set by ``seed`` and ``set_options`` since the last reset.

        Raises:
            ConfigurationError: If the options are not the same for all environments.
        """
        if any(options != self._options[0] for options in self._options):
            message = f"Expected the same options for all environments, got {self._options}"
            raise ConfigurationError(message)
        seeds: Any = None if set(self._seeds) == {None} else self._seeds
        observations: VecEnvObs
        observations, infos = self._list_env.reset(seed=seeds, options=self._options[0] or None)
        self.reset_infos = list(infos)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, terminations, truncations, infos = self._list_env.step(self._actions)
        step_infos = []
        for index, info in enumerate(infos):
            final = dict(info)
            if terminations[index] or truncations[index]:
                final = {**final.pop("final_info"), "terminal_observation": final.pop("final_obs")}
                self.reset_infos[index] = {key: value for key, value in info.items() if key not in ("final_info", "final_obs")}
                self._record_outcome(final)
            final["TimeLimit.truncated"] = bool(truncations[index] and not terminations[index])
            step_infos.append(final)
        return observations, rewards.astype(np.float32), np.logical_or(terminations, truncations), step_infos

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        return [env.render() for env in self._envs]  # type: ignore[misc]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [self._envs[index].get_wrapper_attr(attr_name) for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        for index in self._get_indices(indices):
            self._envs[index].set_wrapper_attr(attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        return [method(*method_args, **method_kwargs) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None) -> list[bool]:
        return [is_wrapped(self._envs[index], wrapper_class) for index in self._get_indices(indices)]

    def _record_outcome(self, final: dict[str, Any]) -> None:
        if final.get("outcome") == "infrastructure":
            self.infrastructure_failures += 1
        elif "solved" in final:
            final["is_success"] = bool(final["solved"])


def _texts_in(space: spaces.Space[Any], name: str = "") -> str:
    """Return the comma-separated names of the text spaces in a space; empty if there are none."""
    if isinstance(space, spaces.Dict):
        return ", ".join(filter(None, (_texts_in(part, key) for key, part in space.items())))
    return (name or str(space)) if isinstance(space, spaces.Text) else ""
