"""The vector forms of wrappers that change observations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from coding_gym import wrappers as single
from coding_gym.wrappers.vector.base import VectorizeWrapper

__all__ = ["BytesObservation", "ChatObservation", "GrayScreen", "ResizeScreen", "StackTranscript"]


class BytesObservation(VectorizeWrapper):
    r"""Texts become arrays: the last bytes of their UTF-8, then zeros; see ``coding_gym.wrappers.BytesObservation``.

    Observation:
        The wrapped environment's, with ``Box`` of uint8 and shape (num_envs, length) for each text.

    Args:
        env: A vector environment whose observations are text, or dicts with text in them.
        length: How many bytes an array has.
        keys: The keys of the texts to be changed; all texts if None.

    Raises:
        ConfigurationError: There is no such text, or the length is not a positive whole number.

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
    r"""Adds what the last steps ran and printed; see ``coding_gym.wrappers.StackTranscript``.

    Observation:
        The wrapped environment's, with ``transcript``: a tuple of ``num_envs`` texts.

    Args:
        env: A vector environment that runs text, and shows ``stdout``, ``stderr`` and ``exit_code``.
        steps: How many steps it goes back.
        max_chars: The most code points; of a longer transcript the end is kept.

    Raises:
        ConfigurationError: A number is not a positive whole one, or it is no such environment.

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
    """Adds the episodes as the messages of chats; see ``coding_gym.wrappers.ChatObservation``.

    Observation:
        The wrapped environment's, with ``messages``: a tuple of ``num_envs`` tuples of ``{"role": ..., "content": ...}``.

    Args:
        env: A vector environment that runs text, and shows ``stdout``, ``stderr`` and ``exit_code``.
        system: The system message; None for none.
        prompt: The first message of the user; the ``prompt`` of the observation if None, if it has one.
        turns: How many steps it goes back; all if None. The first messages stay.
        describe: Makes a message of an observation; ``describe_output`` of ``coding_gym.wrappers.chat_observation`` if None.

    Raises:
        ConfigurationError: A setting cannot be, or it is no such environment.

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
        ConfigurationError: There is no screenshot, or the size is no pair of positive whole numbers.

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
    """Makes the screenshots grey; see ``coding_gym.wrappers.GrayScreen``.

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (num_envs, height, width) or (num_envs, height,
        width, 1).

    Args:
        env: A vector environment whose observations have a ``screenshot`` in colour.
        keep_dim: Whether a last dimension of 1 is left, as networks for pictures want it.

    Raises:
        ConfigurationError: There is no such screenshot.

    Example:
        >>> envs = GrayScreen(gym.make_vec("CodingEnv-v0", num_envs=2, screen=(64, 48)))
        >>> observations, infos = envs.reset(seed=1)
        >>> observations["screenshot"].shape
        (2, 48, 64)
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, keep_dim: bool = False) -> None:
        super().__init__(env, single.GrayScreen, keep_dim=keep_dim)
