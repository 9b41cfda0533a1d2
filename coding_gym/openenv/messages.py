"""Actions, observations and states of OpenEnv's ``coding_env`` in the wire format."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodeStepResult"]


class CodeAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Code to run.

    Attributes:
        code: Python source text.
        capture_screenshot: Whether the observation should contain a screenshot. Sent only if true, since servers refuse unknown
            fields.
    """

    code: str
    capture_screenshot: bool = False


class CodeObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The observation of a step.

    Attributes:
        stdout: Standard output of the step.
        stderr: Standard error of the step.
        exit_code: Exit code of the step, 0 for success.
        screenshot: Base64-encoded PNG, None without a screenshot; servers send it here or in ``metadata``.
        metadata: Server-specific data; coding_gym's sends ``outcome`` and ``state_lost``.
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
    """The response to ``reset`` and ``step``.

    Attributes:
        observation: The observation.
        reward: The reward, None if the server sends none.
        done: Whether the episode is over.
    """

    observation: CodeObservation
    reward: float | None = None
    done: bool = False


class CodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an episode.

    Attributes:
        episode_id: Id of the episode.
        step_count: Number of steps taken.
        last_exit_code: Exit code of the last step, 0 before the first.
    """

    episode_id: str | None = None
    step_count: int = 0
    last_exit_code: int = 0
