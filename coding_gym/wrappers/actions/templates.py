"""``TemplateActions``: actions that fill the slots of a code template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.actions.base import CodeActions, text_space_of

__all__ = ["TemplateActions"]


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
