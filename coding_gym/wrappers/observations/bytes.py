"""``BytesObservation``: text encoded as byte arrays."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray

from coding_gym._validation import check_count
from coding_gym.errors import ConfigurationError

__all__ = ["BytesObservation"]


class BytesObservation(TransformObservation[Any, Any, Any], RecordConstructorArgs):
    r"""Encodes the texts of an observation as fixed-length arrays: their last UTF-8 bytes, padded with zeros.

    Observation:
        The wrapped environment's, with ``Box`` of uint8 and shape (length,) for each text.

    Args:
        env: An environment whose observations are text, or dicts that contain text.
        length: Length of an array in bytes.
        keys: Keys of the texts to encode; all texts if None.

    Raises:
        ConfigurationError: If there is no such text, or the length is not a positive integer.

    Example:
        >>> env = BytesObservation(gym.make("CodingEnv-v0", screen=None), length=4)
        >>> env.observation_space
        Dict('exit_code': Discrete(256), 'stderr': Box(0, 255, (4,), uint8), 'stdout': Box(0, 255, (4,), uint8))
        >>> observation, info = env.reset(seed=1)
        >>> observation = env.step("print(1234)")[0]
        >>> observation["stdout"], bytes(observation["stdout"])
        (array([50, 51, 52, 10], dtype=uint8), b'234\n')
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], *, length: int = 256, keys: Collection[str] | None = None) -> None:
        RecordConstructorArgs.__init__(self, length=length, keys=keys)
        check_count("length", length, 1)
        self._length = length
        self._space = spaces.Box(0, 255, (length,), np.uint8)
        space = env.observation_space
        if isinstance(space, spaces.Text) and keys is None:
            super().__init__(env, func=self._encode, observation_space=self._space)
            return
        entries = space.spaces if isinstance(space, spaces.Dict) else {}
        texts = {key for key, entry in entries.items() if isinstance(entry, spaces.Text)}
        self._keys = texts if keys is None else set(keys)
        if not self._keys or not self._keys <= texts:
            message = (
                f"Expected keys= of texts in the observation, which has {', '.join(sorted(texts)) or 'none'}; got {keys!r}"
            )
            raise ConfigurationError(message)
        changed = spaces.Dict({key: self._space if key in self._keys else entry for key, entry in entries.items()})
        super().__init__(env, func=self._encode_texts, observation_space=changed)

    def _encode_texts(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {key: self._encode(value) if key in self._keys else value for key, value in observation.items()}

    def _encode(self, text: str) -> NDArray[np.uint8]:
        encoded = text.encode()[-self._length :]
        array = np.zeros(self._length, np.uint8)
        array[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        return array
