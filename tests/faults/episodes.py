"""Steps and assertions for environments under fault injection."""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Callable
from typing import Any

from coding_gym.envs.coding_env import CodingEnv
from tests.support.timing import promptly

__all__ = ["SMALL", "after", "assert_infrastructure", "assert_starts_over", "outcome", "shown"]

SMALL: dict[str, Any] = {
    "preload": (),
    "screen": None,
    "step_timeout": 60,
    "cpu": 1,
    "mem": "256m",
    "pids_limit": 64,
    "disk": "8m",
    "shm_size": "8m",
}


def shown(env: CodingEnv, code: str) -> str:
    """Return the standard output of a step, which must succeed."""
    observation, reward, terminated, truncated, info = env.step(textwrap.dedent(code))
    assert (info, observation["stderr"]) == ({"outcome": "ok", "state_lost": False}, "")
    assert (observation["exit_code"], reward, terminated, truncated) == (0, 0.0, False, False)
    return observation["stdout"]


def outcome(env: CodingEnv, code: str) -> tuple[str, int, bool]:
    """Run a step without an infrastructure failure; return outcome, exit code and whether the state was lost."""
    observation, reward, terminated, truncated, info = env.step(textwrap.dedent(code))
    assert (reward, terminated, truncated) == (0.0, False, False), observation["stderr"]
    return info["outcome"], int(observation["exit_code"]), info["state_lost"]


def assert_infrastructure(result: tuple[Any, ...]) -> None:
    """Assert that a step reported an infrastructure failure, and nothing else."""
    observation, reward, terminated, truncated, info = result
    assert info == {"outcome": "infrastructure", "state_lost": True}
    assert (observation["exit_code"], reward, terminated, truncated) == (255, 0.0, False, True)
    assert re.search(r"sandbox failed.*: \S", observation["stderr"])


def assert_starts_over(env: CodingEnv) -> None:
    """Assert that the next reset provides a fresh interpreter and an empty workspace."""
    with promptly():
        observation, info = env.reset(seed=1)
    assert info == {"outcome": "ok", "state_lost": False}
    assert (observation["stdout"], observation["stderr"], observation["exit_code"]) == ("", "", 0)
    assert (
        shown(env, "import os; print('mark' in globals(), os.listdir()); mark = 1; open('mark', 'w').close()") == "False []\n"
    )


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    """Call a function after a delay, in another thread; ``join`` waits for it."""
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer
