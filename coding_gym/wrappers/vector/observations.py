"""Vector forms of the observation wrappers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from coding_gym import wrappers as single
from coding_gym.wrappers.vector.vectorize import VectorizeWrapper

__all__ = ["BytesObservation", "ChatObservation", "GrayScreen", "ResizeScreen", "StackTranscript"]


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
        describe: Formats an observation as a message; ``describe_output`` of ``coding_gym.wrappers.observations.chat`` if None.

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
