"""``FencedCode``: extraction of fenced code from model replies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from coding_gym._validation import check_one_of
from coding_gym.errors import ConfigurationError
from coding_gym.spaces import CodeText
from coding_gym.wrappers.actions.base import CodeActions, text_space_of

__all__ = ["LANGUAGES", "FencedCode", "extract_code", "fenced_blocks"]

LANGUAGES = ("", "python", "py", "python3", "pycon", "ipython")
"""Info strings of Python blocks, in lower case; the empty one is that of a block without a language."""

# HTML blocks extend to the next empty line: a tag such as </think> would swallow the fence below it.
_MARKDOWN = MarkdownIt("commonmark").disable(["html_block", "inline"])


class FencedCode(CodeActions):
    r"""Runs the fenced code of a language model's reply (CommonMark fences of backticks or tildes).

    Action:
        ``CodeText`` of the environment's maximum length: Markdown.

    Args:
        env: An environment whose actions are text.
        which: Which of several blocks to run: ``last``, ``first``, or ``all``, concatenated.
        languages: Languages of the blocks to consider: the first word after the fence, in lower case, ``""`` for none.
        no_fence: What to run if the text has no fence at all: ``nothing``, or the whole ``text``.
        unclosed: Whether to consider a block without a closing fence, as in a reply cut off by a token limit.

    Raises:
        ConfigurationError: If an option is invalid, or the environment's actions are not text.

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
        check_one_of("which", which, ("last", "first", "all"))
        check_one_of("no_fence", no_fence, ("nothing", "text"))
        if isinstance(languages, str):
            message = f"Expected languages= to be a list such as ['python', 'py', ''], got {languages!r}"
            raise ConfigurationError(message)
        self._which = which
        self._languages = frozenset(languages)
        self._runs_text = no_fence == "text"
        self._unclosed = unclosed
        super().__init__(env, CodeText(text_space_of(env).max_length))

    def code_of(self, action: Any) -> str:
        """Return the code to run from a reply."""
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
    r"""Return the fenced blocks of a Markdown text as (language in lower case, content).

    Example:
        >>> fenced_blocks("~~~ Python\n1\n~~~\n- and\n  ```sh\n  ls")
        [('python', '1\n'), ('sh', 'ls\n')]
    """
    return [(_language_of(token), token.content) for token in _fences(text)]


def extract_code(text: str) -> str:
    r"""Return the code of a reply: its last Python block, or the whole text if it has no fence.

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
    # Without a final newline, the tokens do not show whether the last line closes a block.
    whole = text if text.endswith("\n") else f"{text}\n"
    return [token for token in _MARKDOWN.parse(whole) if token.type == "fence"]


def _language_of(fence: Token) -> str:
    return (fence.info.split() or [""])[0].strip("{}.").lower()


def _is_closed(fence: Token) -> bool:
    assert fence.map is not None
    first, end = fence.map
    return fence.content.count("\n") == end - first - 2
