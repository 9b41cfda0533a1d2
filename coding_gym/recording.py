"""What a program shows on its screen, as a movie."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from coding_gym.env import CodingEnv
from coding_gym.video import Video
from coding_gym_server.protocol import Outcome

__all__ = ["Recording", "record_program"]

_MOST_OUTPUT = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What came of a program.

    Attributes:
        stdout: What it printed.
        stderr: Likewise.
        exit_code: 0 if it succeeded, or waited for events and was closed.
        outcome: Why it ended, as in ``info["outcome"]`` of ``CodingEnv``.
        was_closed: Whether it waited for events until its windows were closed.
        video: What its screen showed, but for black before the first and after the last picture.
        end: When the last picture vanished, in seconds since the program began.
        seconds: How long the program ran.
    """

    stdout: str
    stderr: str
    exit_code: int
    outcome: str
    was_closed: bool
    video: Video
    end: float
    seconds: float

    @property
    def was_stopped(self) -> bool:
        """Whether it ran until time was up."""
        return self.outcome == Outcome.TIMEOUT

    @property
    def ending(self) -> str:
        """How the program ended, in a sentence."""
        match self.outcome:
            case Outcome.TIMEOUT:
                return f"The program was stopped after {self.seconds:.1f} s."
            case Outcome.INFRASTRUCTURE:
                return "The sandbox failed."
            case Outcome.MEMORY:
                return "The program was killed for want of memory."
        closed = "waited for events, was closed, and " if self.was_closed else ""
        return f"The program {closed}ended with exit code {self.exit_code} after {self.seconds:.1f} s."


def record_program(
    source: str, *, seconds: float, rate: float, screen: tuple[int, int], window_manager: bool = False, **sandbox_options: Any
) -> Recording:
    """Run a program in a sandbox of its own, and record its screen.

    It ends by itself, when it waits for events on a screen that has settled, or when time is up.

    Args:
        source: Its source text.
        seconds: How long it may run.
        rate: Frames a second, at most.
        screen: Width and height of the screen in pixels.
        window_manager: Whether a window manager runs on the screen.
        sandbox_options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: A setting cannot be.
        ProviderError: A sandbox cannot be had.
        ProtocolError: The sandbox cannot have a screen.
    """
    env = CodingEnv(
        screen=screen,
        window_manager=window_manager,
        frames=rate,
        step_timeout=seconds,
        show_value=False,
        max_code_chars=max(len(source), 1),
        max_output_chars=_MOST_OUTPUT,
        # For one program there is nothing to gain from modules and workers that wait for the next.
        **{"preload": (), "spare_workers": 0, **sandbox_options},
    )
    with closing(env):
        env.reset()
        obs, _, _, _, info = env.step(source)
        assert env.last_timing is not None
        seconds = env.last_timing.seconds
        video = _without_black(info["frames"])
        return Recording(
            stdout=obs["stdout"],
            stderr=obs["stderr"],
            exit_code=int(obs["exit_code"]),
            outcome=info["outcome"],
            was_closed=info.get("idle") == "closed",
            video=video,
            end=next((time for time in info["frames"].times if video and time > video.times[-1]), seconds),
            seconds=seconds,
        )


def _without_black(video: Video) -> Video:
    """Leave out what comes before the first picture, and after the last."""
    visible = [index for index, picture in enumerate(video) if picture.any()]
    return video[visible[0] : visible[-1] + 1] if visible else Video()
