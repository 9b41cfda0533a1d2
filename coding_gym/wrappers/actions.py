"""Wrappers that change actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import Template
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TransformAction
from markdown_it import MarkdownIt
from markdown_it.token import Token

from coding_gym._validation import check_count, check_one_of
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.spaces import CodeText

__all__ = [
    "LANGUAGES",
    "CodeActions",
    "FencedCode",
    "SnippetActions",
    "TemplateActions",
    "TokenActions",
    "extract_code",
    "fenced_blocks",
    "text_space_of",
]


class CodeActions(TransformAction[Any, Any, Any], RecordConstructorArgs):
    """Base class of wrappers whose actions encode source text.

    Args:
        env: An environment whose actions are text.
        space: Action space of the wrapper.
    """

    def __init__(self, env: gym.Env[Any, Any], space: spaces.Space[Any]) -> None:
        text_space_of(env)
        super().__init__(env, func=self._checked_code_of, action_space=space)

    def code_of(self, action: Any) -> str:
        """Return the source text of an action."""
        raise NotImplementedError

    def _checked_code_of(self, action: Any) -> str:
        if action not in self.action_space:
            message = f"Expected an action in {self.action_space}, got {action!r:.200}"
            raise InvalidActionError(message)
        return self.code_of(action)


def text_space_of(env: gym.Env[Any, Any]) -> spaces.Text:
    """Return the action space of an environment whose actions are text.

    Raises:
        ConfigurationError: If they are not.
    """
    if not isinstance(env.action_space, spaces.Text):
        message = f"Expected an environment whose actions are text, as those of CodingEnv are, got {env.action_space}"
        raise ConfigurationError(message)
    return env.action_space


class TokenActions(CodeActions):
    """Maps sequences of token ids to code.

    Action:
        ``MultiDiscrete`` of shape (length,), int64: token ids, which index the vocabulary; with ``end`` one more id, equal
        to the size of the vocabulary, ends the sequence.

    Args:
        env: An environment whose actions are text.
        vocabulary: The tokens.
        length: Number of tokens of an action.
        join: Separator between tokens.
        end: Whether there is a token id that ends the sequence early.

    Attributes:
        vocabulary: The tokens.

    Raises:
        ConfigurationError: If the vocabulary is empty, the longest code exceeds the environment's maximum length, or its
            actions are not text.

    Example:
        >>> env = TokenActions(gym.make("CodingEnv-v0"), ["1", "2", "+", "*"], length=5)
        >>> env.action_space
        MultiDiscrete([5 5 5 5 5])
        >>> env.code_of([1, 3, 1, 4, 0])
        '2*2'
        >>> observation, info = env.reset(seed=1)
        >>> env.step(np.array([1, 3, 1, 4, 0]))[0]["stdout"].strip()
        '4'
        >>> env.close()
    """

    def __init__(
        self, env: gym.Env[Any, Any], vocabulary: Sequence[str], *, length: int, join: str = "", end: bool = True
    ) -> None:
        RecordConstructorArgs.__init__(self, vocabulary=vocabulary, length=length, join=join, end=end)
        check_count("length", length, 1)
        code_space = text_space_of(env)
        if isinstance(vocabulary, str) or not vocabulary or not all(word in code_space for word in (*vocabulary, join)):
            message = f"Expected vocabulary= to be a list of words that are in {code_space}, got {vocabulary!r:.200}"
            raise ConfigurationError(message)
        longest = length * max(map(len, vocabulary)) + (length - 1) * len(join)
        if longest > code_space.max_length:
            message = (
                f"{length} words can be {longest} characters long, and an action at most {code_space.max_length}: lower length="
            )
            raise ConfigurationError(message)
        self.vocabulary = tuple(vocabulary)
        self._join = join
        super().__init__(env, spaces.MultiDiscrete(np.full(length, len(vocabulary) + bool(end))))

    def code_of(self, action: Any) -> str:
        """Return the code that an action encodes."""
        numbers = [int(number) for number in action]
        if len(self.vocabulary) in numbers:
            numbers = numbers[: numbers.index(len(self.vocabulary))]
        return self._join.join(self.vocabulary[number] for number in numbers)


class SnippetActions(CodeActions):
    """Maps discrete actions to code snippets.

    Action:
        ``Discrete(len(snippets))``.

    Args:
        env: An environment whose actions are text.
        snippets: Code snippets, or a mapping of names to snippets.

    Attributes:
        snippets: Snippets, indexed by action.
        names: Names of the snippets, indexed by action; the code itself if no names were given.

    Raises:
        ConfigurationError: If there are no snippets, one is not in the environment's action space, or its actions are not text.

    Example:
        >>> env = SnippetActions(gym.make("CodingEnv-v0"), {"begin": "n = 0", "count": "n += 1", "show": "print(n)"})
        >>> env.action_space, env.names[2], env.action_of("show")
        (Discrete(3), 'show', 2)
        >>> observation, info = env.reset(seed=1)
        >>> [env.step(action)[0]["stdout"] for action in (0, 1, 1, 2)][-1].strip()
        '2'
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], snippets: Sequence[str] | Mapping[str, str]) -> None:
        RecordConstructorArgs.__init__(self, snippets=snippets)
        if isinstance(snippets, str) or not snippets:
            message = f"Expected snippets= to be a list of code, or a mapping of names to code, got {snippets!r:.200}"
            raise ConfigurationError(message)
        self.names = tuple(snippets)
        self.snippets = tuple(snippets.values()) if isinstance(snippets, Mapping) else tuple(snippets)
        code_space = text_space_of(env)
        for snippet in self.snippets:
            if snippet not in code_space:
                message = f"Expected snippets that are in {code_space}, got {snippet!r:.200}"
                raise ConfigurationError(message)
        super().__init__(env, spaces.Discrete(len(self.snippets)))

    def code_of(self, action: Any) -> str:
        """Return the snippet that an action runs."""
        return self.snippets[int(action)]

    def action_of(self, name: str) -> int:
        """Return the action that runs the snippet of a name.

        Raises:
            ValueError: If there is no such snippet.
        """
        return self.names.index(name)


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


class TemplateActions(CodeActions):
    r"""Fills the slots of a code template with the choices of an action.

    Action:
        ``MultiDiscrete`` of shape (number of slots,), int64, in the order of their first occurrence in the template; or with
        ``as_dict`` a ``Dict`` of slot to ``Discrete``.

    Args:
        env: An environment whose actions are text.
        template: Code template, with slots ``$name`` or ``${name}``, and ``$$`` for a dollar sign (``string.Template``).
        choices: Alternatives for each slot.
        as_dict: Whether actions are dicts of slot to choice.

    Attributes:
        slots: The names of the slots, in order.

    Raises:
        ConfigurationError: If the template is invalid, the slots and the keys of ``choices`` differ, a slot has no choices, the
            longest code exceeds the environment's maximum length, or its actions are not text.

    Example:
        >>> env = TemplateActions(
        ...     gym.make("CodingEnv-v0"), "print($a $sign $b)", {"a": ["1", "20"], "b": ["3", "4"], "sign": ["+", "-", "*"]}
        ... )
        >>> env.slots, env.action_space
        (('a', 'sign', 'b'), MultiDiscrete([2 3 2]))
        >>> observation, info = env.reset(seed=1)
        >>> env.step(np.array([1, 2, 0]))[0]["stdout"]
        '60\n'
        >>> env.close()
    """

    def __init__(
        self, env: gym.Env[Any, Any], template: str, choices: Mapping[str, Sequence[str]], *, as_dict: bool = False
    ) -> None:
        RecordConstructorArgs.__init__(self, template=template, choices=choices, as_dict=as_dict)
        self._template = Template(template)
        self.slots = tuple(self._template.get_identifiers()) if self._template.is_valid() else ()
        if not self.slots or set(self.slots) != set(choices):
            message = (
                f"Expected a template with a slot such as $name for each of choices= ({', '.join(choices) or 'none'}), "
                f"found {', '.join(self.slots) or 'none'} in {template!r:.200}"
            )
            raise ConfigurationError(message)
        for slot, texts in choices.items():
            if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
                message = f"Expected choices= to have a list of code for the slot {slot!r}, got {texts!r:.200}"
                raise ConfigurationError(message)
        self._choices = {slot: tuple(choices[slot]) for slot in self.slots}
        longest = self._template.substitute({slot: max(texts, key=len) for slot, texts in self._choices.items()})
        if longest not in (code_space := text_space_of(env)):
            message = (
                f"Expected a template whose code is in {code_space}, got one of {len(longest)} characters: {longest!r:.200}"
            )
            raise ConfigurationError(message)
        sizes = {slot: len(texts) for slot, texts in self._choices.items()}
        space: spaces.Space[Any] = spaces.MultiDiscrete(np.array(list(sizes.values())))
        super().__init__(env, spaces.Dict({s: spaces.Discrete(n) for s, n in sizes.items()}) if as_dict else space)

    def code_of(self, action: Any) -> str:
        """Return the template filled with the choices of an action."""
        numbers = action if isinstance(action, Mapping) else dict(zip(self.slots, action, strict=True))
        return self._template.substitute({slot: texts[int(numbers[slot])] for slot, texts in self._choices.items()})
