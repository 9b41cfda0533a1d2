"""Spaces for source text, program output, and chat messages.

Gymnasium's ``Text`` contains strings over a small alphabet; code and output are arbitrary Unicode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.spaces.text import alphanumeric
from gymnasium.vector.utils import create_shared_memory
from numpy.typing import NDArray

from coding_gym.errors import ConfigurationError

__all__ = ["ChatMessages", "CodeText", "action_space", "observation_space"]

_SNIPPETS = (
    "print('hello')",
    "x = 1",
    "x = locals().get('x', 0) + 1\nprint(x)",
    "sum(range(10))",
    "import math\nprint(math.pi)",
    "[n * n for n in range(5)]",
    "1 / 0",
    "raise ValueError('no')",
    "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\n\nf(10)",
    "import random\nprint(random.random())",
    "'\N{SNOWMAN}' * 3",
    "import sys\nprint('oops', file=sys.stderr)",
    "import sys\nsys.exit(3)",
    "not python",
    "open('note.txt', 'w').write('hi')\nprint(open('note.txt').read())",
    "",
)

_MAX_MESSAGE_CHARS = 2**31


class CodeText(spaces.Text):
    r"""Space of Unicode text without lone surrogates, of at most ``max_length`` code points.

    ``sample`` draws a runnable snippet of Python, or with a mask or probabilities a string over letters and digits as ``Text``
    does.

    Args:
        max_length: Maximum number of code points.
        min_length: Minimum number of code points; the empty string is allowed by default.
        seed: Seed for sampling.

    Example:
        >>> space = CodeText(100, seed=0)
        >>> "print('\N{GREEK SMALL LETTER PI}')" in space, "" in space, "\ud800" in space, "x" * 101 in space
        (True, True, False, False)
        >>> isinstance(space.sample(), str)
        True
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        if not 0 <= min_length <= max_length:
            message = (
                f"Expected lengths with 0 <= min_length <= max_length, got min_length={min_length}, max_length={max_length}"
            )
            raise ConfigurationError(message)
        super().__init__(max_length, min_length=min_length, charset=alphanumeric, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a string of a permitted length that UTF-8 can encode."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and (x.isascii() or _is_encodable(x))

    def sample(
        self,
        mask: tuple[int | None, NDArray[np.int8] | None] | None = None,
        probability: tuple[int | None, NDArray[np.float64] | None] | None = None,
    ) -> str:
        """Draw a snippet that is in the space; see ``Text.sample`` for the arguments."""
        fitting = [snippet for snippet in _SNIPPETS if snippet in self]
        if mask is not None or probability is not None or not fitting:
            return super().sample(mask, probability)
        return fitting[int(self.np_random.integers(len(fitting)))]

    def __repr__(self) -> str:
        return f"CodeText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeText) and self.min_length == other.min_length and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]


class ChatMessages(spaces.Sequence):
    """Space of chat messages: a tuple or list of ``{"role": ..., "content": ...}``, whose values are text.

    ``sample`` draws alternating messages of a user and an assistant.

    Args:
        roles: Permitted roles.
        seed: Seed for sampling.

    Example:
        >>> space = ChatMessages(seed=0)
        >>> [{"role": "user", "content": "hello"}] in space, () in space, [{"role": "nobody", "content": ""}] in space
        (True, True, False)
        >>> space.sample() in space
        True
    """

    def __init__(
        self, roles: Iterable[str] = ("system", "user", "assistant"), *, seed: int | np.random.Generator | None = None
    ) -> None:
        self.roles = tuple(roles)
        self._content = CodeText(_MAX_MESSAGE_CHARS)
        role = CodeText(max(map(len, self.roles)))
        super().__init__(spaces.Dict({"role": role, "content": self._content}), seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a list or tuple of messages."""
        return isinstance(x, (list, tuple)) and all(self._is_message(message) for message in x)

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[dict[str, str], ...]:
        """Draw some messages; see ``Sequence.sample`` for the arguments."""
        drawn = super().sample(mask, probability)
        return tuple({"role": self.roles[-1 - n % 2], "content": str(one["content"])} for n, one in enumerate(drawn))

    def __repr__(self) -> str:
        return f"ChatMessages({', '.join(self.roles)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatMessages) and self.roles == other.roles

    __hash__ = None  # type: ignore[assignment]

    def _is_message(self, message: Any) -> bool:
        return (
            isinstance(message, Mapping)
            and set(message) == {"role", "content"}
            and message["role"] in self.roles
            and message["content"] in self._content
        )


def action_space(max_code_chars: int) -> CodeText:
    """Return the action space: source text."""
    return CodeText(max_code_chars)


def observation_space(max_output_chars: int, screen: tuple[int, int] | None) -> spaces.Dict:
    """Return the observation space.

    Args:
        max_output_chars: Maximum number of code points of stdout, and of stderr.
        screen: Width and height of the screenshot in pixels; None for no screenshot.

    Returns:
        ``stdout`` and ``stderr``: ``CodeText``; ``exit_code``: ``Discrete(256)``; ``screenshot``: ``Box`` of uint8 with shape
        (height, width, 3).
    """
    entries: dict[str, spaces.Space[Any]] = {
        "stdout": CodeText(max_output_chars),
        "stderr": CodeText(max_output_chars),
        "exit_code": spaces.Discrete(256),
    }
    if screen is not None:
        width, height = screen
        entries["screenshot"] = spaces.Box(0, 255, (height, width, 3), np.uint8)
    return spaces.Dict(entries)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@create_shared_memory.register(CodeText)
def _refuse_shared_memory(space: CodeText, n: int = 1, ctx: Any = None) -> NoReturn:
    # Gymnasium reads shared text once, at construction: every later observation would repeat the first one.
    message = (
        f"{space} cannot live in shared memory: AsyncVectorEnv would show its first value indefinitely. "
        "Pass shared_memory=False, or use gym.make_vec('CodingEnv-v0', num_envs=...), which needs no processes."
    )
    raise CustomSpaceError(message)
