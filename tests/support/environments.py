"""Environments of tests, without a screen."""

from __future__ import annotations

OPTIONS = {"screen": None, "step_timeout": 20}


def stdout(env, code):
    """Take a step without warnings and errors; return its stdout."""
    obs, *_ = env.step(code)
    assert obs["stderr"] == ""
    return obs["stdout"]
