"""Scheduling priority of user code."""

from __future__ import annotations

import os

__all__ = ["lower_priority"]

_NICENESS = 10


def lower_priority() -> None:
    """Lower the priority of the calling process to that of user code, so that the others can end a hundred busy processes."""
    os.nice(_NICENESS)
