"""``CodingEnvGUI-v0``: an agent writes GUI programs and operates them with mouse and keyboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from gymnasium import spaces

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import EpisodeState, StepResult, check_code
from coding_gym.envs.event_spaces import EventSequenceSpace
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.inputs import InputEvent
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.spaces import CodeText
from coding_gym_server.protocol import OnIdle, StepAction

__all__ = ["CodingEnvGUI", "CodingGuiVectorEnv", "GuiAction"]

_MAX_SETTLE = 60.0


class GuiAction(TypedDict):
    """An action of ``CodingEnvGUI``.

    Attributes:
        code: Source text to run first; nothing is run if it is empty.
        events: Input events to perform afterwards, created by ``coding_gym.inputs``.
    """

    code: str
    events: list[InputEvent] | tuple[InputEvent, ...]


class CodingEnvGUI(CodingEnv):
    """``CodingEnv`` with mouse and keyboard: an action is code plus input events that are performed after it.

    A program that waits for events continues to run across steps, until a step runs other code. The agent can therefore write a
    program, see its window, and click and type in it.

    Action:
        A dict of ``code`` (``CodeText(max_code_chars)``, empty to run nothing) and ``events`` (``EventSequenceSpace``: a list
        or tuple of input events, created by the functions of ``coding_gym.inputs``).

    Observation, reward and info:
        As for ``CodingEnv``. The screenshot is taken after the events, once the screen is stable.

    Args:
        settle: Maximum number of seconds that a step with events waits for a stable screen, and that a step observes a program
            which never rests; 1/30 suits games.
        pool: As for ``CodingEnv``.
        config: As for ``CodingEnv``.
        options: As for ``CodingEnv``, but the default of ``on_idle`` is ``return``: a program that waits for events continues
            with the next step.

    Raises:
        ConfigurationError: If an option is unknown or invalid, or there is no screen.

    Example:
        >>> from coding_gym import inputs
        >>> env = gym.make("CodingEnvGUI-v0")  # doctest: +SKIP
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_, info = env.step({"code": PROGRAM, "events": []})  # doctest: +SKIP
        >>> info["outcome"]  # doctest: +SKIP
        'running'
        >>> env.step({"code": "", "events": [inputs.click(60, 40), inputs.text("hé")]})  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        settle: float = 1.0,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        self._settle = settle
        options.setdefault("on_idle", OnIdle.RETURN)
        super().__init__(pool=pool, config=config, **options)

    def _make_episode(self, options: EnvOptions) -> EpisodeState:
        return _GuiEpisode(options, settle=self._settle)

    def step(self, action: GuiAction) -> StepResult:  # type: ignore[override]
        """Run the code of ``action``, and perform its events.

        Raises:
            InvalidActionError: If it is not in the action space, and nothing is run; or if an event has an unknown key, and no
                event is performed.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        return super().step(action)  # type: ignore[arg-type]


class _GuiEpisode(EpisodeState):
    """An episode with input events.

    Args:
        settings: Options of the environment.
        settle: Maximum number of seconds that a step with events waits for a stable screen.
    """

    env_id = "CodingEnvGUI-v0"

    def __init__(self, settings: EnvOptions, *, settle: Any) -> None:
        if settings.screen_size is None:
            message = "Expected a screen for CodingEnvGUI, got screen=None: leave screen= out, or pass (width, height)"
            raise ConfigurationError(message)
        # By its size, so that a sandbox without a display refuses it instead of showing black.
        super().__init__(replace(settings, screen=settings.screen_size))
        if not (isinstance(settle, (int, float)) and 0 <= settle <= _MAX_SETTLE):
            message = f"Expected settle= to be 0 to {_MAX_SETTLE:g} seconds, got {settle!r}"
            raise ConfigurationError(message)
        self._settle = float(settle)
        self._code_space = CodeText(settings.max_code_chars)
        self._events_space = EventSequenceSpace(*settings.screen_size)
        self.action_space = spaces.Dict({"code": self._code_space, "events": self._events_space})

    def check_action(self, action: Any) -> None:
        self.check_begun()
        if not (isinstance(action, Mapping) and set(action) == {"code", "events"}):
            message = f'Expected an action such as {{"code": "", "events": [inputs.click(10, 20)]}}, got {action!r:.200}'
            raise InvalidActionError(message)
        check_code(action["code"], self._code_space)
        self._events_space.check(action["events"])

    def begin_step(self, action: Any) -> StepAction:
        events = self._events_space.check(action["events"])
        request = StepAction(code=str(action["code"]), inputs=events, settle_s=self._settle)
        self._log_action(request)
        return request


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
