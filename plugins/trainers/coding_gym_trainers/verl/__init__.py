"""Rewards and tools for verl's trainers. Only ``CodingTool`` imports verl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coding_gym_trainers.verl.reward import close_graders, compute_score

if TYPE_CHECKING:
    from coding_gym_trainers.verl.tool import CodingTool

__all__ = ["CodingTool", "close_graders", "compute_score"]


def __getattr__(name: str) -> Any:
    if name == "CodingTool":
        from coding_gym_trainers.verl.tool import CodingTool

        return CodingTool
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
