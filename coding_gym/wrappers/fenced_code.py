"""``FencedCode``: the code in what a language model says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from coding_gym.errors import ConfigurationError
from coding_gym.spaces import CodeText
from coding_gym.wrappers.code_actions import CodeActions, text_space_of

__all__ = ["LANGUAGES", "FencedCode", "extract_code", "fenced_blocks"]

LANGUAGES = ("", "python", "py", "python3", "pycon", "ipython")
"""The languages of Python blocks, in lower case; the first is that of a block that names none."""

# HTML blocks last to the next empty line: a tag such as </think> would swallow the fence below it.
_MARKDOWN = MarkdownIt("commonmark").disable(["html_block", "inline"])


class FencedCode(CodeActions):
    r"""Each action is what a language model says, and what is in its fences (CommonMark's, of backticks or tildes) is run.

    Action:
        ``CodeText``, as long as the environment takes it: Markdown.

    Args:
        env: An environment whose actions are text.
        which: Which of several blocks is run: ``last``, ``first``, or ``all``, one below the other.
        languages: The languages of the blocks that count: the first word after the fence, in lower case, ``""`` for none.
        no_fence: What is run if there is no such block: ``nothing``, or all of the text if it has no fence at all (``text``).
        unclosed: Whether a block that nothing closes, as where a model ran out of tokens, counts.

    Raises:
        ConfigurationError: A setting cannot be, or the environment's actions are no text.

    Example:
        >>> env = FencedCode(gym.make("CodingEnv-v0"))
        >>> env.code_of("Let me see:\n\n```python\nprint(6 * 7)\n```\nThat should do.")
        'print(6 * 7)\n'
        >>> observation, info = env.reset(seed=1)
        >>> env.step("```python\nprint(6 * 7)\n```")[0]["stdout"]
        '42\n'
        >>> env.close()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        which: Literal["last", "first", "all"] = "last",
        languages: Collection[str] = LANGUAGES,
        no_fence: Literal["nothing", "text"] = "nothing",
        unclosed: bool = True,
    ) -> None:
        RecordConstructorArgs.__init__(self, which=which, languages=languages, no_fence=no_fence, unclosed=unclosed)
        for name, value, known in (("which", which, ("last", "first", "all")), ("no_fence", no_fence, ("nothing", "text"))):
            if value not in known:
                message = f"Expected {name}= to be one of {', '.join(known)}, got {value!r}"
                raise ConfigurationError(message)
        if isinstance(languages, str):
            message = f"Expected languages= to be a list such as ['python', 'py', ''], got {languages!r}"
            raise ConfigurationError(message)
        self._which = which
        self._languages = frozenset(languages)
        self._runs_text = no_fence == "text"
        self._unclosed = unclosed
        super().__init__(env, CodeText(text_space_of(env).max_length))

    def code_of(self, action: Any) -> str:
        """Return what is run of what a model says."""
        fences = _fences(action)
        if not fences:
            return str(action) if self._runs_text else ""
        blocks = [
            token.content
            for token in fences
            if _language_of(token) in self._languages and (self._unclosed or _is_closed(token))
        ]
        if self._which == "all":
            return "".join(blocks)
        return (blocks[-1] if self._which == "last" else blocks[0]) if blocks else ""


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    r"""Return the fenced blocks of Markdown: language, in lower case, and content.

    Example:
        >>> fenced_blocks("~~~ Python\n1\n~~~\n- and\n  ```sh\n  ls")
        [('python', '1\n'), ('sh', 'ls\n')]
    """
    return [(_language_of(token), token.content) for token in _fences(text)]


def extract_code(text: str) -> str:
    r"""Return the code in what a model says: the last block of Python, or all of it if it has no fence.

    Example:
        >>> extract_code("I try this:\n```python\nprint(1)\n```\n")
        'print(1)\n'
    """
    blocks = fenced_blocks(text)
    if not blocks:
        return text
    python = [content for language, content in blocks if language in LANGUAGES]
    return python[-1] if python else ""


def _fences(text: str) -> list[Token]:
    # Whether a last line without an end closes a block could not be told by its tokens.
    whole = text if text.endswith("\n") else f"{text}\n"
    return [token for token in _MARKDOWN.parse(whole) if token.type == "fence"]


def _language_of(fence: Token) -> str:
    return (fence.info.split() or [""])[0].strip("{}.").lower()


def _is_closed(fence: Token) -> bool:
    assert fence.map is not None
    first, end = fence.map
    return fence.content.count("\n") == end - first - 2
