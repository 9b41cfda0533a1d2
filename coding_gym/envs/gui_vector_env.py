"""``CodingGuiVectorEnv``: vector form of ``CodingEnvGUI-v0``, with concurrent steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.gui_env import CodingEnvGUI
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import InvalidActionError

__all__ = ["CodingGuiVectorEnv"]

_PARTS = ("code", "events")


class CodingGuiVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingEnvGUI-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    Action:
        A dict of ``code`` (a sequence of ``num_envs`` strings) and ``events`` (a sequence of ``num_envs`` lists or tuples of
        input events). After an event with an unknown key, which only the sandbox notices, ``step`` raises an
        ``InvalidActionError``, although the other environments are stepped.

    Args:
        num_envs: Number of environments.
        settle: Maximum number of seconds that a step with events waits for a stable screen.
        options: Options of ``CodingVectorEnv`` and ``CodingEnvGUI``.

    Raises:
        ConfigurationError: If an option is invalid.

    Example:
        >>> from coding_gym import inputs
        >>> envs = gym.make_vec("CodingEnvGUI-v0", num_envs=2)  # doctest: +SKIP
        >>> observations, infos = envs.reset(seed=1)  # doctest: +SKIP
        >>> envs.step({"code": (PROGRAM, PROGRAM), "events": ((), ())})  # doctest: +SKIP
        >>> envs.step({"code": ("", ""), "events": ([inputs.click(60, 40)], [])})  # doctest: +SKIP
    """

    def __init__(self, num_envs: int = 1, *, settle: float = 1.0, **options: Any) -> None:
        self._settle = settle
        super().__init__(num_envs, **options)

    def _split(self, actions: Any, count: int) -> list[Any]:
        if not (isinstance(actions, Mapping) and set(actions) == set(_PARTS)):
            message = f'Expected a batch of actions such as {{"code": ("", ""), "events": ((), ())}}, got {actions!r:.200}'
            raise InvalidActionError(message)
        for name in _PARTS:
            part = actions[name]
            if isinstance(part, str) or not hasattr(part, "__len__") or len(part) != count:
                message = f"Expected {count} entries in {name!r}, one for each environment, got {part!r:.200}"
                raise InvalidActionError(message)
        return super()._split(actions, count)

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingEnvGUI(settle=self._settle, **settings)
