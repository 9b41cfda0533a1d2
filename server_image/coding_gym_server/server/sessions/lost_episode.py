"""The error of requests to an episode that was lost."""

from __future__ import annotations

__all__ = ["EpisodeLostError"]


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
