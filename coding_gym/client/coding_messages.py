"""What goes to and comes from an environment that runs code, in the terms of OpenEnv's ``coding_env``, as it is on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodeStepResult"]


class CodeAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Code to run.

    Attributes:
        code: Python source text.
        capture_screenshot: Whether the observation is to hold a picture of the screen. Sent only if so, for servers refuse what
            they do not know.
    """

    code: str
    capture_screenshot: bool = False


class CodeObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What running code showed.

    Attributes:
        stdout: Its standard output.
        stderr: Its standard error.
        exit_code: 0 if it succeeded.
        screenshot: A PNG in Base64, None if there is no picture; servers send it here or in ``metadata``.
        metadata: Whatever else the server says, of ours ``outcome`` and ``state_lost``.
    """

    stdout: str
    stderr: str
    exit_code: int
    screenshot: str | None = None
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.screenshot is None:
            msgspec.structs.force_setattr(self, "screenshot", self.metadata.get("screenshot"))


class CodeStepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``reset`` and ``step``.

    Attributes:
        observation: What there is to see.
        reward: The reward, None if the server gives none.
        done: Whether the episode is over.
    """

    observation: CodeObservation
    reward: float | None = None
    done: bool = False


class CodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an episode.

    Attributes:
        episode_id: Its name.
        step_count: The number of steps taken.
        last_exit_code: The exit code of the last one, 0 before the first.
    """

    episode_id: str | None = None
    step_count: int = 0
    last_exit_code: int = 0
