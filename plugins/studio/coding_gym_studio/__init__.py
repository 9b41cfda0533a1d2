"""Pages in the browser, served on this machine: recorded episodes and search trees, and the sessions of a running trainer."""

from __future__ import annotations

from coding_gym_studio.watching.activation import watch

__all__ = ["watch"]
