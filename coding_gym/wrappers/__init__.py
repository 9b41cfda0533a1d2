"""Wrappers that turn an environment into another one."""

from __future__ import annotations

from coding_gym.wrappers.play_program import PlayProgram

__all__ = ["PlayProgram"]
