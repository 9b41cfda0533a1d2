"""Wrappers that change observations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray

from coding_gym._validation import check_count
from coding_gym.envs.episode import Info
from coding_gym.envs.transcript import Turn, format_transcript
from coding_gym.errors import ConfigurationError
from coding_gym.spaces import ChatMessages, CodeText
from coding_gym.wrappers.actions import text_space_of
from coding_gym.wrappers.play_program import check_pair

__all__ = [
    "BytesObservation",
    "ChatObservation",
    "GrayScreen",
    "ResizeScreen",
    "StackTranscript",
    "describe_output",
    "with_entry",
]

_SCREEN = "screenshot"

_Picture = NDArray[np.uint8]


class ResizeScreen(TransformObservation[Any, Any, Any], RecordConstructorArgs):
    """Scales the screenshot of an observation; each pixel is the mean of the pixels that it covers (box filter).

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (height, width, 3), or (height, width, 1) or
        (height, width) if it was grayscale.

    Args:
        env: An environment whose observations have a ``screenshot``.
        size: Width and height in pixels.

    Raises:
        ConfigurationError: If there is no screenshot, or the size is not a pair of positive integers.

    Example:
        >>> env = ResizeScreen(gym.make("CodingEnv-v0"), (84, 63))
        >>> env.observation_space["screenshot"]
        Box(0, 255, (63, 84, 3), uint8)
        >>> observation, info = env.reset(seed=1)
        >>> observation["screenshot"].shape
        (63, 84, 3)
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], size: tuple[int, int]) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        width, height = check_pair("size", size)
        shape = (height, width, *_screen_of(env).shape[2:])

        def resize(picture: _Picture) -> _Picture:
            from PIL import Image

            flat = picture.reshape(picture.shape[:2]) if picture.shape[2:] == (1,) else picture
            return np.array(Image.fromarray(flat).resize((width, height), Image.Resampling.BOX)).reshape(shape)

        super().__init__(env, func=_on_screen(resize), observation_space=_with_screen(env, shape))


class GrayScreen(TransformObservation[Any, Any, Any], RecordConstructorArgs):
    """Converts the screenshot of an observation to grayscale (ITU-R BT.601 luma).

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (height, width), or (height, width, 1).

    Args:
        env: An environment whose observations have a ``screenshot`` in color.
        keep_dim: Whether to keep a last dimension of 1, as image networks expect.

    Raises:
        ConfigurationError: If there is no screenshot in color.

    Example:
        >>> env = GrayScreen(ResizeScreen(gym.make("CodingEnv-v0"), (84, 84)), keep_dim=True)
        >>> observation, info = env.reset(seed=1)
        >>> observation["screenshot"].shape, observation["screenshot"].dtype
        ((84, 84, 1), dtype('uint8'))
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], *, keep_dim: bool = False) -> None:
        RecordConstructorArgs.__init__(self, keep_dim=keep_dim)
        screen = _screen_of(env)
        if screen.shape[2:] != (3,):
            message = f"Expected a screenshot of shape (height, width, 3), got {screen}"
            raise ConfigurationError(message)
        shape = (*screen.shape[:2], 1) if keep_dim else screen.shape[:2]

        def to_gray(picture: _Picture) -> _Picture:
            from PIL import Image

            return np.array(Image.fromarray(picture).convert("L")).reshape(shape)

        super().__init__(env, func=_on_screen(to_gray), observation_space=_with_screen(env, shape))


def _screen_of(env: gym.Env[Any, Any]) -> spaces.Box:
    space = env.observation_space
    screen = space.spaces.get(_SCREEN) if isinstance(space, spaces.Dict) else None
    if not isinstance(screen, spaces.Box):
        message = (
            f"Expected an environment whose observations have a {_SCREEN!r}, got {space}: make it with screen=(width, height)"
        )
        raise ConfigurationError(message)
    return screen


def _with_screen(env: gym.Env[Any, Any], shape: tuple[int, ...]) -> spaces.Dict:
    assert isinstance(env.observation_space, spaces.Dict)
    return spaces.Dict({**env.observation_space.spaces, _SCREEN: spaces.Box(0, 255, shape, np.uint8)})


def _on_screen(change: Callable[[_Picture], _Picture]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda observation: {**observation, _SCREEN: change(observation[_SCREEN])}


_OUTPUT = ("stdout", "stderr", "exit_code")


def with_entry(env: gym.Env[Any, Any], key: str, entry: spaces.Space[Any]) -> spaces.Dict:
    """Return an environment's observation space with an additional key.

    Raises:
        ConfigurationError: If the environment does not run code, its observations lack the output, or have that key already.
    """
    text_space_of(env)
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or not all(name in space.spaces for name in _OUTPUT):
        message = (
            f"Expected an environment whose observations have {', '.join(_OUTPUT)}, as those of CodingEnv, got {space}: "
            "put wrappers that change them outside of this one"
        )
        raise ConfigurationError(message)
    if key in space.spaces:
        message = f"The observation has {key!r} already: wrap the environment once"
        raise ConfigurationError(message)
    return spaces.Dict({**space.spaces, key: entry})


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


_PROMPT = "prompt"


def describe_output(observation: Mapping[str, Any]) -> str:
    r"""Format the output of a step as a single text.

    Example:
        >>> describe_output({"stdout": "1\n", "stderr": "oops\n", "exit_code": 1})
        '1\noops\n[exit code 1]'
        >>> describe_output({"stdout": "", "stderr": "", "exit_code": 0})
        '[no output]'
    """
    exit_code = f"[exit code {observation['exit_code']}]" if observation["exit_code"] else ""
    parts = [part.rstrip("\n") for part in (observation["stdout"], observation["stderr"], exit_code) if part]
    return "\n".join(parts) or "[no output]"


class ChatObservation(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    r"""Adds the episode as chat messages: a system message, a prompt, then each action and its output.

    Apply it outside of ``FencedCode``, so that the model reads its complete replies.

    Observation:
        The wrapped environment's, plus ``messages``: ``ChatMessages``, a tuple of ``{"role": ..., "content": ...}``; the roles
        are ``system``, ``user`` and ``assistant``.

    Args:
        env: An environment whose actions are text and whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        system: System message; None for none.
        prompt: First user message; if None, the ``prompt`` of the observation, if there is one.
        turns: Number of most recent steps to include; all if None. The system message and the prompt are always included.
        describe: Formats an observation as a message; ``describe_output`` if None.

    Raises:
        ConfigurationError: If an option is invalid, or the environment does not meet these requirements.

    Example:
        >>> env = ChatObservation(gym.make("CodingEnv-v0"), prompt="What is 6 * 7?")
        >>> observation, info = env.reset(seed=1)
        >>> observation["messages"]
        ({'role': 'user', 'content': 'What is 6 * 7?'},)
        >>> env.step("print(6 * 7)")[0]["messages"][1:]
        ({'role': 'assistant', 'content': 'print(6 * 7)'}, {'role': 'user', 'content': '42'})
        >>> env.close()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        system: str | None = None,
        prompt: str | None = None,
        turns: int | None = None,
        describe: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, system=system, prompt=prompt, turns=turns, describe=describe)
        super().__init__(env)
        for name, text in (("system", system), ("prompt", prompt)):
            if not isinstance(text, str | None):
                message = f"Expected {name}= to be text, got {text!r:.200}"
                raise ConfigurationError(message)
        self._max_messages = None if turns is None else 2 * check_count("turns", turns, 1)
        self._system = system
        self._prompt = prompt
        self._describe = describe or describe_output
        self._opening: list[tuple[str, str]] = []
        self._turns: list[tuple[str, str]] = []
        self.observation_space = with_entry(env, "messages", ChatMessages())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        prompt = observation.get(_PROMPT) if self._prompt is None else self._prompt
        self._opening = [(role, text) for role, text in (("system", self._system), ("user", prompt)) if text is not None]
        self._turns = []
        return self._with_messages(observation), info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turns += [("assistant", action), ("user", self._describe(observation))]
        return self._with_messages(observation), reward, terminated, truncated, info

    def observe_restored(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Add the messages of a restored episode to its observation; see ``coding_gym.branching``."""
        return self._with_messages(observation)

    def _with_messages(self, observation: dict[str, Any]) -> dict[str, Any]:
        later = self._turns if self._max_messages is None else self._turns[-self._max_messages :]
        return {**observation, "messages": tuple({"role": role, "content": text} for role, text in (*self._opening, *later))}


class StackTranscript(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    r"""Adds a transcript of the last steps: their code and output, formatted as a REPL session.

    Observation:
        The wrapped environment's, plus ``transcript``: ``CodeText(max_chars)``, empty after a reset.

    Args:
        env: An environment whose actions are text and whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        steps: Number of most recent steps to include.
        max_chars: Maximum number of code points; a longer transcript is truncated at its beginning.

    Raises:
        ConfigurationError: If a number is not a positive integer, or the environment does not meet these requirements.

    Example:
        >>> env = StackTranscript(gym.make("CodingEnv-v0"), steps=2)
        >>> observation, info = env.reset(seed=1)
        >>> for code in ("x = 0", "x += 1", "1 / x"):
        ...     observation = env.step(code)[0]
        >>> observation["transcript"]
        '>>> x += 1\n>>> 1 / x\n1.0'
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], *, steps: int = 4, max_chars: int = 4096) -> None:
        RecordConstructorArgs.__init__(self, steps=steps, max_chars=max_chars)
        super().__init__(env)
        check_count("max_chars", max_chars, 1)
        self._turns: deque[Turn] = deque(maxlen=check_count("steps", steps, 1))
        self._max_chars = max_chars
        self.observation_space = with_entry(env, "transcript", CodeText(max_chars))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._turns.clear()
        return {**observation, "transcript": ""}, info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turns.append(Turn(action, observation["stdout"], observation["stderr"], int(observation["exit_code"])))
        return self.observe_restored(observation), reward, terminated, truncated, info

    def observe_restored(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Add the transcript to an observation, such as that of a restored episode; see ``coding_gym.branching``."""
        return {**observation, "transcript": format_transcript(list(self._turns))[-self._max_chars :]}
