"""``EpisodeOptions``: the options of an episode, completed by the server's defaults."""

from __future__ import annotations

from coding_gym_server.ipc.messages import Configure
from coding_gym_server.protocol import Capture, OnIdle, ResetOptions, StepAction
from coding_gym_server.protocol.backends import canonical_backend
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.openenv_rewards import Score, score
from coding_gym_server.server.sessions.step_view import StepView, watch_limit
from coding_gym_server.server.supervisor.watchdog import TimeLimits

__all__ = ["EpisodeOptions"]

_MAX_WALL_SECONDS = 1e8


class EpisodeOptions:
    """The options of an episode, completed by the server's defaults.

    Args:
        requested: The options of the reset.
        defaults: The server's defaults.

    Attributes:
        requested: The options of the reset.
    """

    def __init__(self, requested: ResetOptions, defaults: SessionDefaults) -> None:
        self.requested = requested
        self._defaults = defaults

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return canonical_backend(self.requested.backend or self._defaults.backend)

    @property
    def max_output_chars(self) -> int:
        """Maximum number of code points of stdout, and of stderr, in an observation."""
        return self.requested.max_output_chars or self._defaults.max_output_chars

    def configuration(self, directory: str | None, display: str | None, display_cookie: bytes) -> Configure:
        """Return the configuration of the worker.

        Args:
            directory: The working directory. None for the one of the workspace.
            display: The display's name, None without a screen.
            display_cookie: Its X authority cookie.
        """
        seed = self.requested.seed
        return Configure(
            seed=None if seed is None else f"{seed:x}",
            show_value=self.requested.show_value,
            directory=directory,
            display=display,
            display_cookie=display_cookie,
            variables=self.requested.variables,
        )

    def limits(self, action: StepAction) -> TimeLimits:
        """Return the time limits of a step."""
        return TimeLimits(
            wall=min(action.timeout_s or self.requested.step_timeout or self._defaults.step_timeout, _MAX_WALL_SECONDS),
            cpu=self.requested.cpu_timeout or self._defaults.cpu_timeout,
        )

    def view(self, action: StepAction, limits: TimeLimits) -> StepView:
        """Return how a step captures the screen."""
        requested = action.capture_screenshot
        default = self.requested.capture or Capture.NEVER
        return StepView(
            capture=default if requested is None else Capture.ALWAYS if requested else Capture.NEVER,
            on_idle=action.on_idle or self.requested.on_idle or OnIdle.CLOSE,
            frame_rate=self.requested.frame_rate,
            inputs=action.inputs,
            settle=action.settle_s,
            max_watch=watch_limit(limits.wall, action.max_watch or self.requested.max_watch),
        )

    def score(self, code: str) -> Score:
        """Return the score of a step's code."""
        names = self._defaults.rewards if self.requested.rewards is None else self.requested.rewards
        return score(code, names) if names else Score()
