"""Vector forms of the action wrappers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import VectorizeTransformAction

from coding_gym import wrappers as single
from coding_gym.wrappers.actions.fenced_code import LANGUAGES

__all__ = ["FencedCode", "SnippetActions", "TemplateActions", "TokenActions"]


class SnippetActions(VectorizeTransformAction[Any, Any, Any, Any]):
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


class TokenActions(VectorizeTransformAction[Any, Any, Any, Any]):
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


class TemplateActions(VectorizeTransformAction[Any, Any, Any, Any]):
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


class FencedCode(VectorizeTransformAction[Any, Any, Any, Any]):
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
