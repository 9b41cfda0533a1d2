"""Screen recording of a program, for ``coding-gym record``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Unpack

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.media.video import Video
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs
from coding_gym_server.protocol import Outcome

__all__ = ["ProgramRecording", "record_program"]

_MAX_OUTPUT_CHARS = 10_000_000
_CLOSING_SECONDS = 3.0
"""Seconds beyond the time limit for closing a program that still draws."""


@dataclass(frozen=True, kw_only=True)
class ProgramRecording:
    """Output and screen recording of a program.

    Attributes:
        stdout: Standard output.
        stderr: Standard error.
        exit_code: Exit code; 0 if the program succeeded, or was idle and its windows were closed.
        outcome: Outcome, as in ``info["outcome"]`` of ``CodingEnv``.
        was_closed: Whether the program was idle, waiting for events, and its windows were closed.
        was_stopped: Whether the program was stopped at the time limit.
        video: Recording of the screen, without black frames at the beginning and the end.
        end: Time at which the last frame disappeared, in seconds since the start of the program.
        seconds: Duration of the program in seconds.
    """

    stdout: str
    stderr: str
    exit_code: int
    outcome: str
    was_closed: bool
    was_stopped: bool
    video: Video
    end: float
    seconds: float

    @property
    def ending(self) -> str:
        """Description of how the program ended, as a sentence."""
        if self.was_stopped:
            return f"The program was stopped after {self.seconds:.1f} s."
        match self.outcome:
            case Outcome.INFRASTRUCTURE:
                return "The sandbox failed."
            case Outcome.MEMORY:
                return "The program was killed because memory ran out."
        closed = "waited for events, was closed, and " if self.was_closed else ""
        return f"The program {closed}ended with exit code {self.exit_code} after {self.seconds:.1f} s."


def record_program(
    source: str,
    *,
    seconds: float,
    rate: float,
    screen: tuple[int, int],
    window_manager: bool = False,
    **sandbox_options: Unpack[SandboxKwargs],
) -> ProgramRecording:
    """Run a program in a dedicated sandbox and record its screen.

    The program ends by itself, when it is idle on a stable screen, or at the time limit.

    Args:
        source: Source code of the program.
        seconds: Time limit in seconds.
        rate: Maximum number of frames per second.
        screen: Width and height of the screen in pixels.
        window_manager: Whether to run a window manager on the screen.
        sandbox_options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If a setting is invalid or unsupported by the sandbox: it has no screen, for example.
        ProviderError: If no sandbox is available.
    """
    # A single program does not benefit from preloaded modules and spare workers.
    config = SandboxConfig.of({"preload": (), "spare_workers": 0, **sandbox_options})
    env = CodingEnv(
        screen=screen,
        window_manager=window_manager,
        frames=rate,
        step_timeout=seconds + _CLOSING_SECONDS,
        max_watch=seconds,
        show_value=False,
        max_code_chars=max(len(source), 1),
        max_output_chars=_MAX_OUTPUT_CHARS,
        config=config,
    )
    with closing(env):
        env.reset()
        obs, _, _, _, info = env.step(source)
        assert env.last_timing is not None
        seconds = env.last_timing.seconds
        video = _without_black(info["frames"])
        return ProgramRecording(
            stdout=obs["stdout"],
            stderr=obs["stderr"],
            exit_code=int(obs["exit_code"]),
            outcome=info["outcome"],
            was_closed=info.get("idle") == "closed",
            was_stopped=info.get("idle") == "animating" or info["outcome"] == Outcome.TIMEOUT,
            video=video,
            end=next((time for time in info["frames"].times if video and time > video.times[-1]), seconds),
            seconds=seconds,
        )


def _without_black(video: Video) -> Video:
    """Return the video without black frames at the beginning and the end."""
    visible = [index for index, picture in enumerate(video) if picture.any()]
    return video[visible[0] : visible[-1] + 1] if visible else Video()
