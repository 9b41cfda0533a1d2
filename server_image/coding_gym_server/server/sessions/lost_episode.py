"""The error of requests to an episode that was lost."""

from __future__ import annotations

__all__ = ["EpisodeLostError", "OnlyForkError"]


class EpisodeLostError(RuntimeError):
    """The episode that a request refers to was lost by a failure of the sandbox.

    Args:
        reason: What failed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The episode was lost ({reason}), and its processes, files and variables with it: reset the session, or run code "
            "in it, to begin another one"
        )


class OnlyForkError(RuntimeError):
    """A session beyond the session limit would begin an episode of its own."""

    def __init__(self) -> None:
        super().__init__("A fork cannot begin an episode of its own in a sandbox at its session limit: open another session")
