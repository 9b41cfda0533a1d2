"""``CodingEnvGUI-v0``: an agent writes programs with windows, and then uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from gymnasium import spaces
from gymnasium.utils import EzPickle

from coding_gym.env import CodingEnv
from coding_gym.episode import Episode, StepResult, check_code
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.input_spaces import EventsSpace
from coding_gym.inputs import InputEvent
from coding_gym.settings import EpisodeSettings
from coding_gym.spaces import CodeText
from coding_gym_server.protocol import StepAction

__all__ = ["CodingEnvGUI", "GuiAction"]

_SLOWEST_SETTLE = 60.0


class GuiAction(TypedDict):
    """An action of ``CodingEnvGUI``.

    Attributes:
        code: Source text to run first; nothing is run if it is empty.
        events: What hands do then, as ``coding_gym.inputs`` makes it.
    """

    code: str
    events: list[InputEvent] | tuple[InputEvent, ...]


class CodingEnvGUI(CodingEnv):
    """``CodingEnv`` with hands: an action is code, and what to do with mouse and keyboard after it has been run.

    A program that waits for events goes on from step to step, until a step brings other code: so an agent writes a program,
    sees its window, and clicks and types in it.

    Action:
        A dict of ``code`` (``CodeText(max_code_chars)``, empty to run nothing) and ``events`` (``EventsSpace``: a list or tuple
        of what the functions of ``coding_gym.inputs`` return).

    Observation, reward and info:
        As ``CodingEnv`` has them. The screenshot is from after the events, when the screen has settled.

    Args:
        on_idle: What becomes of a program that waits for events: ``return`` lets it run on, ``close`` closes its windows.
        settle: Seconds that a step with events waits at most for the screen to settle; a game, whose screen never does, passes
            1/30.
        options: What ``CodingEnv`` takes, and fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: A setting cannot be.

    Example:
        >>> from coding_gym import inputs
        >>> env = gym.make("CodingEnvGUI-v0")  # doctest: +SKIP
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_, info = env.step({"code": PROGRAM, "events": []})  # doctest: +SKIP
        >>> info["outcome"]  # doctest: +SKIP
        'running'
        >>> env.step({"code": "", "events": [inputs.click(60, 40), inputs.text("hé")]})  # doctest: +SKIP
    """

    def __init__(self, *, on_idle: str = "return", settle: float = 1.0, **options: Any) -> None:
        super().__init__(on_idle=on_idle, **options)
        EzPickle.__init__(self, on_idle=on_idle, settle=settle, **options)
        self._episode = _GuiEpisode(self._episode.settings, settle=settle)
        self.action_space = self._episode.action_space

    def step(self, action: GuiAction) -> StepResult:  # type: ignore[override]
        """Run the code of ``action``, and perform its events.

        Raises:
            InvalidActionError: It is not in the action space, and nothing was run; or an event has a key that no keyboard has,
                and no event was performed.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
        """
        return super().step(action)  # type: ignore[arg-type]


class _GuiEpisode(Episode):
    """An episode whose actions have events.

    Args:
        settings: What applies to all episodes.
        settle: Seconds that a step with events waits at most for the screen to settle.
    """

    def __init__(self, settings: EpisodeSettings, *, settle: Any) -> None:
        if settings.screen_size is None:
            message = "Expected a screen for CodingEnvGUI, got screen=None: leave screen= out, or pass (width, height)"
            raise ConfigurationError(message)
        # By its size, for a sandbox that cannot have a screen is of no use here.
        super().__init__(replace(settings, screen=settings.screen_size))
        if not (isinstance(settle, (int, float)) and 0 <= settle <= _SLOWEST_SETTLE):
            message = f"Expected settle= to be 0 to {_SLOWEST_SETTLE:g} seconds, got {settle!r}"
            raise ConfigurationError(message)
        self._settle = float(settle)
        self._code_space = CodeText(settings.max_code_chars)
        self._events_space = EventsSpace(*settings.screen_size)
        self.action_space = spaces.Dict({"code": self._code_space, "events": self._events_space})

    def check_action(self, action: Any) -> None:
        self.check_begun()
        if not (isinstance(action, Mapping) and set(action) == {"code", "events"}):
            message = f'Expected an action such as {{"code": "", "events": [inputs.click(10, 20)]}}, got {action!r:.200}'
            raise InvalidActionError(message)
        check_code(action["code"], self._code_space)
        self._events_space.check(action["events"])

    def step_begins(self, action: Any) -> StepAction:
        events = self._events_space.check(action["events"])
        asked = StepAction(code=str(action["code"]), inputs=events, settle_s=self._settle)
        self._take_note(asked)
        return asked
