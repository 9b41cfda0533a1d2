"""The wrappers of ``coding_gym.wrappers`` for vector environments, by the same names."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from gymnasium.wrappers.vector import VectorizeTransformAction
from numpy.typing import NDArray

from coding_gym import wrappers as single
from coding_gym.branching.wrapper_state import copy_states, observe, put_states, wrappers_of
from coding_gym.envs.episode import Info, Timing
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.actions import LANGUAGES
from coding_gym.wrappers.rewards import Weight
from coding_gym.wrappers.terms import RewardTerm

__all__ = [
    "BytesObservation",
    "ChatObservation",
    "FencedCode",
    "GrayScreen",
    "PotentialShaping",
    "ResizeScreen",
    "RewardSum",
    "SnippetActions",
    "StackTranscript",
    "TemplateActions",
    "TokenActions",
    "VectorizeWrapper",
]


# The base classes of this module are not generic before Gymnasium 1.4.


class VectorizeWrapper(VectorWrapper):
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


class SnippetActions(VectorizeTransformAction):
    r"""Maps discrete actions to code snippets; see ``coding_gym.wrappers.SnippetActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs,), int64.

    Args:
        env: A vector environment whose actions are text.
        snippets: Code snippets, or a mapping of names to snippets.

    Raises:
        ConfigurationError: If there are no snippets, one is not in the environment's action space, or its actions are not text.

    Example:
        >>> import numpy as np
        >>> envs = SnippetActions(gym.make_vec("CodingEnv-v0", num_envs=2), ["print('a')", "print('b')"])
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(np.array([1, 0]))[0]["stdout"]
        ('b\n', 'a\n')
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], snippets: Sequence[str] | Mapping[str, str]) -> None:
        super().__init__(env, single.SnippetActions, snippets=snippets)


class TokenActions(VectorizeTransformAction):
    r"""Maps sequences of token ids to code; see ``coding_gym.wrappers.TokenActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs, length), int64.

    Args:
        env: A vector environment whose actions are text.
        vocabulary: The tokens.
        length: Number of tokens of an action.
        join: Separator between tokens.
        end: Whether there is a token id that ends the sequence early.

    Raises:
        ConfigurationError: If the vocabulary is empty, the longest code exceeds the environment's maximum length, or its
            actions are not text.

    Example:
        >>> import numpy as np
        >>> envs = TokenActions(gym.make_vec("CodingEnv-v0", num_envs=2), ["1", "2", "+"], length=3)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(np.array([[0, 2, 0], [1, 3, 1]]))[0]["stdout"]
        ('2\n', '2\n')
        >>> envs.close()
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], vocabulary: Sequence[str], *, length: int, join: str = "", end: bool = True
    ) -> None:
        super().__init__(env, single.TokenActions, vocabulary=vocabulary, length=length, join=join, end=end)


class TemplateActions(VectorizeTransformAction):
    r"""Fills the slots of a code template with the choices of an action; see ``coding_gym.wrappers.TemplateActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs, number of slots), int64; or with ``as_dict`` a ``Dict`` of slot to
        ``MultiDiscrete`` of shape (num_envs,).

    Args:
        env: A vector environment whose actions are text.
        template: Code template, with slots ``$name`` or ``${name}``, and ``$$`` for a dollar sign (``string.Template``).
        choices: Alternatives for each slot.
        as_dict: Whether actions are dicts of slot to choice.

    Raises:
        ConfigurationError: If template and choices do not match, or the environment's actions are not text.

    Example:
        >>> import numpy as np
        >>> envs = TemplateActions(gym.make_vec("CodingEnv-v0", num_envs=2), "print($a)", {"a": ["1", "2"]}, as_dict=True)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step({"a": np.array([1, 0])})[0]["stdout"]
        ('2\n', '1\n')
        >>> envs.close()
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], template: str, choices: Mapping[str, Sequence[str]], *, as_dict: bool = False
    ) -> None:
        super().__init__(env, single.TemplateActions, template=template, choices=choices, as_dict=as_dict)


class FencedCode(VectorizeTransformAction):
    r"""Runs the fenced code of a language model's reply; see ``coding_gym.wrappers.FencedCode``.

    Action:
        A tuple of ``num_envs`` texts.

    Args:
        env: A vector environment whose actions are text.
        which: Which of several blocks to run: ``last``, ``first``, or ``all``, concatenated.
        languages: Languages of the blocks to consider.
        no_fence: What to run if the text has no fence at all: ``nothing``, or the whole ``text``.
        unclosed: Whether to consider a block without a closing fence.

    Raises:
        ConfigurationError: If an option is invalid, or the environment's actions are not text.

    Example:
        >>> envs = FencedCode(gym.make_vec("CodingEnv-v0", num_envs=2))
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(["```python\nprint(1)\n```", "I do not know."])[0]["stdout"]
        ('1\n', '')
        >>> envs.close()
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        which: Literal["last", "first", "all"] = "last",
        languages: Collection[str] = LANGUAGES,
        no_fence: Literal["nothing", "text"] = "nothing",
        unclosed: bool = True,
    ) -> None:
        super().__init__(env, single.FencedCode, which=which, languages=languages, no_fence=no_fence, unclosed=unclosed)


class BytesObservation(VectorizeWrapper):
    r"""Encodes texts as arrays of their last UTF-8 bytes; see ``coding_gym.wrappers.BytesObservation``.

    Observation:
        The wrapped environment's, with ``Box`` of uint8 and shape (num_envs, length) for each text.

    Args:
        env: A vector environment whose observations are text, or dicts that contain text.
        length: Length of an array in bytes.
        keys: Keys of the texts to encode; all texts if None.

    Raises:
        ConfigurationError: If there is no such text, or the length is not a positive integer.

    Example:
        >>> envs = BytesObservation(gym.make_vec("CodingEnv-v0", num_envs=2), length=4)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(["print(1)", "print(234)"])[0]["stdout"]
        array([[49, 10,  0,  0],
               [50, 51, 52, 10]], dtype=uint8)
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, length: int = 256, keys: Collection[str] | None = None) -> None:
        super().__init__(env, single.BytesObservation, length=length, keys=keys)


class StackTranscript(VectorizeWrapper):
    r"""Adds a transcript of the last steps; see ``coding_gym.wrappers.StackTranscript``.

    Observation:
        The wrapped environment's, plus ``transcript``: a tuple of ``num_envs`` texts.

    Args:
        env: A vector environment with text actions, whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        steps: Number of most recent steps to include.
        max_chars: Maximum number of code points; a longer transcript is truncated at its beginning.

    Raises:
        ConfigurationError: If a number is not a positive integer, or the environment does not meet these requirements.

    Example:
        >>> envs = StackTranscript(gym.make_vec("CodingEnv-v0", num_envs=2))
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(["1 + 1", "x = 2"])[0]["transcript"]
        ('>>> 1 + 1\n2', '>>> x = 2')
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, steps: int = 4, max_chars: int = 4096) -> None:
        super().__init__(env, single.StackTranscript, steps=steps, max_chars=max_chars)


class ChatObservation(VectorizeWrapper):
    """Adds the episodes as chat messages; see ``coding_gym.wrappers.ChatObservation``.

    Observation:
        The wrapped environment's, plus ``messages``: a tuple of ``num_envs`` tuples of ``{"role": ..., "content": ...}``.

    Args:
        env: A vector environment with text actions, whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        system: System message; None for none.
        prompt: First user message; if None, the ``prompt`` of the observation, if there is one.
        turns: Number of most recent steps to include; all if None. The system message and the prompt are always included.
        describe: Formats an observation as a message; ``describe_output`` of ``coding_gym.wrappers.observations`` if None.

    Raises:
        ConfigurationError: If an option is invalid, or the environment does not meet these requirements.

    Example:
        >>> envs = ChatObservation(gym.make_vec("CodingEnv-v0", num_envs=2), prompt="Count!")
        >>> observations, infos = envs.reset(seed=1)
        >>> first, second = envs.step(["print(1)", "pass"])[0]["messages"]
        >>> [message["content"] for message in first], second[-1]
        (['Count!', 'print(1)', '1'], {'role': 'user', 'content': '[no output]'})
        >>> envs.close()
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        system: str | None = None,
        prompt: str | None = None,
        turns: int | None = None,
        describe: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        super().__init__(env, single.ChatObservation, system=system, prompt=prompt, turns=turns, describe=describe)


class ResizeScreen(VectorizeWrapper):
    """Scales the screenshots; see ``coding_gym.wrappers.ResizeScreen``.

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (num_envs, height, width, ...).

    Args:
        env: A vector environment whose observations have a ``screenshot``.
        size: Width and height in pixels.

    Raises:
        ConfigurationError: If there is no screenshot, or the size is not a pair of positive integers.

    Example:
        >>> envs = ResizeScreen(gym.make_vec("CodingEnv-v0", num_envs=2), (84, 63))
        >>> observations, infos = envs.reset(seed=1)
        >>> observations["screenshot"].shape
        (2, 63, 84, 3)
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], size: tuple[int, int]) -> None:
        super().__init__(env, single.ResizeScreen, size=size)


class GrayScreen(VectorizeWrapper):
    """Converts the screenshots to grayscale; see ``coding_gym.wrappers.GrayScreen``.

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (num_envs, height, width) or (num_envs, height,
        width, 1).

    Args:
        env: A vector environment whose observations have a ``screenshot`` in color.
        keep_dim: Whether to keep a last dimension of 1, as image networks expect.

    Raises:
        ConfigurationError: If there is no screenshot in color.

    Example:
        >>> envs = GrayScreen(gym.make_vec("CodingEnv-v0", num_envs=2, screen=(64, 48)))
        >>> observations, infos = envs.reset(seed=1)
        >>> observations["screenshot"].shape
        (2, 48, 64)
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, keep_dim: bool = False) -> None:
        super().__init__(env, single.GrayScreen, keep_dim=keep_dim)


class RewardSum(VectorizeWrapper):
    """Computes the reward of a step as a weighted sum of terms; see ``coding_gym.wrappers.RewardSum``.

    Info:
        ``reward_terms``: term to unweighted values, float64 of shape (num_envs,), all 0 at a reset.

    Args:
        env: The vector environment.
        terms: Name to weight, term to weight, or any name to (term, weight). Each environment has its own copies.

    Raises:
        ConfigurationError: If a term is unknown, two terms have the same name, or a weight is not a number.

    Example:
        >>> envs = RewardSum(gym.make_vec("CodingEnv-v0", num_envs=2), {"exit_code": 1.0, "novelty": 0.5})
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, rewards, terminations, truncations, infos = envs.step(["print(1)", "1 / 0"])
        >>> rewards, infos["reward_terms"]["novelty"]
        (array([1.5, 0. ]), array([1., 0.]))
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], terms: Mapping[Any, Weight]) -> None:
        super().__init__(env, single.RewardSum, terms=terms)


class PotentialShaping(VectorizeWrapper):
    """Adds ``gamma * potential(after) - potential(before)`` to rewards; see ``coding_gym.wrappers.PotentialShaping``.

    Info:
        ``shaping``: the added amount, float64 of shape (num_envs,), 0 at a reset.

    Args:
        env: The vector environment.
        potential: A function of the observation of one environment and its info; or a reward term.
        gamma: Discount factor of the learner, 0 to 1.

    Raises:
        ConfigurationError: If the potential or ``gamma`` is invalid.

    Example:
        >>> envs = PotentialShaping(gym.make_vec("CodingEnv-v0", num_envs=2), "exit_code", gamma=0.5)
        >>> observations, infos = envs.reset(seed=1)
        >>> [envs.step([first, "1"])[1].tolist() for first in ("1 / 0", "1")]
        [[0.0, 0.5], [0.5, -0.5]]
        >>> envs.close()
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        potential: str | RewardTerm | Callable[[Any, Info], float],
        *,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, single.PotentialShaping, potential=potential, gamma=gamma)
