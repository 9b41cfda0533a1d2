"""The vector forms of wrappers that make source text of other actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import VectorizeTransformAction

from coding_gym import wrappers as single
from coding_gym.wrappers.fenced_code import LANGUAGES

__all__ = ["FencedCode", "SnippetActions", "TemplateActions", "TokenActions"]


class SnippetActions(VectorizeTransformAction[Any, Any, Any, Any]):
    r"""Each action runs one of a few pieces of code; see ``coding_gym.wrappers.SnippetActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs,), int64.

    Args:
        env: A vector environment whose actions are text.
        snippets: The pieces of code, or a mapping of names to them.

    Raises:
        ConfigurationError: There are none, one is no action of the environment, or the environment's actions are no text.

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


class TokenActions(VectorizeTransformAction[Any, Any, Any, Any]):
    r"""Each action is some code, word for word from a vocabulary; see ``coding_gym.wrappers.TokenActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs, length), int64.

    Args:
        env: A vector environment whose actions are text.
        vocabulary: The words.
        length: How many of them an action has.
        join: What stands between them.
        end: Whether there is a number that ends the code early.

    Raises:
        ConfigurationError: There are no words, they make longer code than the environment takes, or its actions are no text.

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


class TemplateActions(VectorizeTransformAction[Any, Any, Any, Any]):
    r"""Each action fills the slots of a piece of code; see ``coding_gym.wrappers.TemplateActions``.

    Action:
        ``MultiDiscrete`` of shape (num_envs, number of slots), int64; or with ``as_dict`` a ``Dict`` of slot to
        ``MultiDiscrete`` of shape (num_envs,).

    Args:
        env: A vector environment whose actions are text.
        template: The code, with slots ``$name`` or ``${name}``, and ``$$`` for a dollar sign (``string.Template``).
        choices: What can be in each slot.
        as_dict: Whether actions are dicts.

    Raises:
        ConfigurationError: Template and choices do not go together, or the environment's actions are no text.

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


class FencedCode(VectorizeTransformAction[Any, Any, Any, Any]):
    r"""Each action is what a language model says, in Markdown; see ``coding_gym.wrappers.FencedCode``.

    Action:
        A tuple of ``num_envs`` texts.

    Args:
        env: A vector environment whose actions are text.
        which: Which of several blocks is run: ``last``, ``first``, or ``all``, one below the other.
        languages: The languages of the blocks that count.
        no_fence: What is run if there is no such block: ``nothing``, or all of the text if it has no fence at all (``text``).
        unclosed: Whether a block that nothing closes counts.

    Raises:
        ConfigurationError: A setting cannot be, or the environment's actions are no text.

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
