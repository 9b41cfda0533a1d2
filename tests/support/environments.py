"""Environments of tests."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym

OPTIONS = {"screen": None, "step_timeout": 20}


def stdout(env, code):
    """Take a step without warnings and errors; return its stdout."""
    obs, *_ = env.step(code)
    assert obs["stderr"] == ""
    return obs["stdout"]


def make_envs(stack, num_envs=2, *, id="CodingEnv-v0", **options):
    """Return a vector environment that ``stack`` closes."""
    return stack.enter_context(closing(gym.make_vec(id, num_envs=num_envs, **options)))
