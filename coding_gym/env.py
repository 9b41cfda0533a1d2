"""``CodingEnv-v0``: an agent writes code, a sandbox runs it, the agent sees what came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from coding_gym.config import SandboxConfig
from coding_gym.episode import (
    FIRST_RESET_TIMEOUT,
    LOOK_TIMEOUT,
    RESET_TIMEOUT,
    Episode,
    Info,
    Obs,
    ResetAttempts,
    StepResult,
    Timing,
    infrastructure_failure,
    own_screenshot,
    refuse_action,
)
from coding_gym.errors import CapacityError, ProtocolError, TransportError
from coding_gym.frames import decode_pixels
from coding_gym.looking import NO_PICTURE, Region, look_at
from coding_gym.pool import SandboxPool, make_slot, resolve_config
from coding_gym.providers import Sandbox, SandboxSlot
from coding_gym.settings import RENDER_MODES, EpisodeSettings, ScreenOption
from coding_gym_server.protocol import LookOptions, ObservationData, Screen, Window

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["CodingEnv"]


class CodingEnv(gym.Env[Obs, str], EzPickle):
    """Runs each action, a piece of Python, in one persistent interpreter in a sandbox.

    The sandbox starts at the first ``reset`` and goes at ``close``. Whatever the code does, a crash of the interpreter
    included, is an observation. Only faults of the sandbox itself are not: such a step ends the episode with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``, and the next ``reset`` starts a new sandbox.

    Action:
        ``CodeText(max_code_chars)``: source text.

    Observation:
        A dict of ``stdout`` and ``stderr`` (``CodeText``, cut in the middle at ``max_output_chars``), ``exit_code``
        (``Discrete(256)``: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal) and ``screenshot`` (uint8, shape
        (height, width, 3), what windows show once it has settled, black while there are none).

    Reward:
        Always 0: wrap the environment to shape one.

    Info:
        ``outcome`` (``ok``, ``error``, ``running``, ``timeout``, ``memory``, ``killed`` or ``infrastructure``), ``state_lost``
        (whether the namespace is gone), and ``idle`` after a program that waited for events (``closed`` or ``returned``).

    Args:
        render_mode: ``ansi`` (the transcript of the episode), ``rgb_array`` (the last screenshot, or a picture of the
            transcript that is as large while there is nothing on the screen) or None.
        screen: Width and height of the screen in pixels; ``auto`` is 640 x 480, and black for ever in a sandbox that cannot
            have a screen; None is no screen, and no screenshot in the observation.
        window_manager: Whether a window manager runs on the screen: for programs that want the whole of it, or have several
            windows.
        capture: When the observation has the screen: ``auto`` (when there is something on it), ``always``, or ``never``, which
            leaves it black.
        on_idle: What becomes of a program that waits for events while its screen has settled: ``close`` closes its windows, and
            interrupts it if it does not take the hint; ``return`` returns from the step, with outcome ``running``, and the next
            step with code closes it.
        frames: Frames a second, at most, of ``info["frames"]``, what the screen showed during the step (``Video``); None for
            none. When they were taken differs from run to run.
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all its processes; None for no limit.
        max_output_chars: The most code points of stdout, and of stderr.
        max_code_chars: The most code points of an action.
        show_value: Whether the value of a last expression is shown, as a REPL does.
        backend: What executes the code: ``python``, ``notebook``, ``restricted`` ..., see ``docs/backends.md``; the sandbox's
            default if None.
        results: Whether ``info["results"]`` has values and displays in all their formats, as a tuple of ``Result``.
        pool: Where to take a sandbox, and give it back at ``close``; the environment starts one of its own if None.
        config: The sandbox, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``mem="1g"`` ...

    Raises:
        ConfigurationError: A setting cannot be.

    Example:
        >>> env = gym.make("CodingEnv-v0", provider="auto", step_timeout=5)
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_ = env.step("print('hello')")  # doctest: +SKIP
    """

    metadata = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
    }

    def __init__(
        self,
        *,
        render_mode: str | None = None,
        screen: ScreenOption = "auto",
        window_manager: bool = False,
        capture: str = "auto",
        on_idle: str = "close",
        frames: float | None = None,
        step_timeout: float = 30.0,
        cpu_timeout: float | None = None,
        max_output_chars: int = 16_384,
        max_code_chars: int = 100_000,
        show_value: bool = True,
        backend: str | None = None,
        results: bool = False,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **sandbox_options: Any,
    ) -> None:
        settings: dict[str, Any] = {
            "render_mode": render_mode,
            "screen": screen,
            "window_manager": window_manager,
            "capture": capture,
            "on_idle": on_idle,
            "frames": frames,
            "step_timeout": step_timeout,
            "cpu_timeout": cpu_timeout,
            "max_output_chars": max_output_chars,
            "max_code_chars": max_code_chars,
            "show_value": show_value,
            "backend": backend,
            "results": results,
        }
        EzPickle.__init__(self, **settings, pool=pool, config=config, **sandbox_options)
        self.render_mode = render_mode
        self._episode = Episode(EpisodeSettings(**settings))
        self.action_space = self._episode.action_space
        self.observation_space = self._episode.observation_space
        self.config = resolve_config(pool, config, sandbox_options, backend=backend)
        self._pool = pool
        self._slot: SandboxSlot | None = None
        self._owns_slot = True
        self._session: Session | None = None
        self._reset_timeout = FIRST_RESET_TIMEOUT
        self._fault: str | None = None
        self._shares_black = False

    @property
    def settings(self) -> EpisodeSettings:
        """What the environment was made with, but for its sandbox."""
        return self._episode.settings

    @property
    def step_timeout(self) -> float:
        """Wall-clock limit of a step in seconds; what it is set to applies from the next ``reset`` on."""
        return self.settings.step_timeout

    @step_timeout.setter
    def step_timeout(self, seconds: float) -> None:
        self._episode.settings = replace(self.settings, step_timeout=seconds)

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before the first ``reset`` and after ``close``."""
        return self._slot.sandbox if self._slot is not None else None

    @property
    def last_timing(self) -> Timing | None:
        """How long the last reset or step took, None before the first."""
        return self._episode.last_timing

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace.

        Args:
            seed: Seeds ``random`` and ``numpy.random`` of the interpreter. Without one the seed of the episode is drawn from
                ``np_random``, so that a run that was seeded once repeats itself.
            options: ``episode_id``: the name of the episode in the server's state. ``files``: what the workspace holds at the
                start, a mapping of paths to str or bytes.

        Raises:
            ProviderError: A sandbox cannot be had; of a pool, in time.
            CapacityError: The server has no free session.
        """
        self.begin_reset(seed=seed, options=options)
        obs, info = self.finish_reset()
        return self._screenshot_for_caller(obs), info

    def step(self, action: str) -> StepResult:
        """Run ``action``.

        Raises:
            InvalidActionError: It is not in the action space; nothing was run.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
        """
        self.check_action(action)
        self.begin_step(action)
        obs, reward, terminated, truncated, info = self.finish_step()
        return self._screenshot_for_caller(obs), reward, terminated, truncated, info

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the episode as ``render_mode`` says: its transcript, a picture of the screen or of the transcript, or None."""
        return self._episode.render()

    def windows(self) -> list[Window]:
        """Return the windows that can be seen, the lowest first.

        Raises:
            ConfigurationError: There is no screen.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
            TransportError: The session is lost.
        """
        return self._look(NO_PICTURE).windows

    def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return what the screen shows now: uint8, shape (height, width, 3).

        Args:
            region: A rectangle, as ``Rectangle`` or (x, y, width, height), black where it is beside the screen; or a window, as
                ``Window`` or its id; the whole screen if None.

        Raises:
            ConfigurationError: There is no screen, or it is no region.
            ProtocolError: There is no such window.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
            TransportError: The session is lost.
        """
        return decode_pixels(self._look(look_at(region)).screenshot)

    def close(self) -> None:
        """End the session and remove the sandbox, or give it back to the pool; harmless when closed already."""
        self._drop_session()
        if self._slot is not None and self._owns_slot:
            self._slot.close()
        self._slot = None

    def __del__(self) -> None:
        # A half-built object has no attributes, an interpreter on its way out no modules.
        with contextlib.suppress(Exception):
            self.close()

    # The two halves of reset and step: a vector environment begins them all before it finishes the first.

    def use_slot(self, slot: SandboxSlot) -> None:
        """Run in a sandbox that somebody else owns; ``close`` leaves it alone."""
        self._slot, self._owns_slot = slot, False

    def share_black_screenshots(self) -> None:
        """Have ``reset`` and ``step`` return one read-only array whenever the screen is black.

        That is for callers who keep many observations and change none: they recognise it without looking at its pixels.
        """
        self._shares_black = True

    def check_action(self, action: object) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: It is not in the action space.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
        """
        self._episode.check_action(action)

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Ask for a new episode, starting a sandbox if there is none."""
        gym.Env.reset(self, seed=seed)
        self._fault = None
        asked = self._episode.begin(seed=seed, np_random=self.np_random, options=options)
        if self._session is not None and self._slot is not None and self._slot.begin_episode():
            with contextlib.suppress(TransportError):
                self._session.ask_reset(asked)
                self._reset_timeout = RESET_TIMEOUT
                return
        self._reconnect()

    def finish_reset(self) -> tuple[Obs, Info]:
        """Wait for the answer to ``begin_reset``; a black screenshot is shared and read-only."""
        attempts = ResetAttempts()
        while True:
            try:
                assert self._session is not None
                return self._episode.begun(self._session.wait(timeout=self._reset_timeout))
            except (CapacityError, TransportError, ProtocolError) as error:
                self._drop_session()
                time.sleep(attempts.pause_after(error))
            except BaseException:
                self._drop_session()
                raise
            self._reconnect()

    def begin_step(self, action: str) -> None:
        """Ask for ``action`` to be run; it has passed ``check_action``."""
        asked = self._episode.step_begins(action)
        if self._session is None:
            self._fault = self._fault or "the session is gone"
            return
        try:
            self._session.ask_step(asked)
        except TransportError as error:
            self._fail(error)

    def finish_step(self) -> StepResult:
        """Wait for the answer to ``begin_step``; a black screenshot is shared and read-only."""
        return self._episode.step_ended(self._wait_for_step())

    def _screenshot_for_caller(self, obs: Obs) -> Obs:
        return obs if self._shares_black else own_screenshot(obs)

    def _wait_for_step(self) -> ObservationData:
        if self._session is not None:
            try:
                return self._session.wait(timeout=self._episode.answer_within)
            except (TransportError, ProtocolError) as error:
                refuse_action(error)
                self._fail(error)
            except BaseException:
                # Interrupted: the answer will come when nobody expects it.
                self._drop_session()
                raise
        return infrastructure_failure(self._fault or "the session is gone")

    def _look(self, options: LookOptions) -> Screen:
        self._episode.check_look()
        if self._session is None:
            raise TransportError(self._fault or "the session is gone")
        try:
            return self._session.look(options, timeout=LOOK_TIMEOUT)
        except TransportError as error:
            self._fail(error)
            raise

    def _reconnect(self) -> None:
        """Open a session, in a new sandbox if need be, and ask for the episode."""
        self._drop_session()
        if self._slot is None:
            self._slot, self._owns_slot = make_slot(self._pool, self.config), True
        self._session = self._slot.connect()
        assert self._episode.options is not None
        self._session.ask_reset(self._episode.options)
        self._reset_timeout = FIRST_RESET_TIMEOUT

    def _fail(self, error: Exception) -> None:
        self._fault = str(error)
        self._drop_session()

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
