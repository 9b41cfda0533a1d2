"""Random programs continue from a snapshot as they would have gone on, however often, and as their replay does.

The environment variable ``CODING_GYM_PROGRAMS`` is the number of programs per backend and provider: 4 by default. Before a
release, and after changes of snapshots, run::

    CODING_GYM_PROGRAMS=500 pytest tests/envs/test_random_programs.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.sandbox.pool import SandboxPool
from tests.support.random_programs import programs, vandalism
from tests.support.requirements import import_extra

DEFAULT_COUNT = 4
COUNT = int(os.environ.get("CODING_GYM_PROGRAMS", DEFAULT_COUNT))


@pytest.fixture(scope="module")
def pool_of_provider(provider: str) -> Iterator[SandboxPool]:
    with SandboxPool(1, provider=provider, sessions=1, acquire_timeout=60) as pool:
        yield pool


def _run(env: CodingEnv, cells: list[str]) -> list[tuple[Any, ...]]:
    """Return what is observed of each cell, without the environment's own notes."""
    seen = []
    for cell in cells:
        observation, *_, info = env.step(cell)
        seen.append((observation["stdout"], observation["stderr"], observation["exit_code"], info["outcome"]))
    return seen


def _check(env: CodingEnv, prefix: list[str], suffix: list[str], backend: str) -> None:
    env.reset(seed=7)
    _run(env, prefix)
    with env.clone_state() as snapshot:
        expected = _run(env, suffix)
        env.restore_state(snapshot)
        assert _run(env, suffix) == expected
        _run(env, vandalism(backend))
        env.restore_state(snapshot)
        assert _run(env, suffix) == expected
        _, info = env.restore_state(snapshot, replay=True)
        assert info["replay"] == {"steps": len(prefix), "differences": []}
        assert _run(env, suffix) == expected


@pytest.mark.timeout(60 + 3 * COUNT)
@pytest.mark.parametrize("backend", ["python", "notebook", "restricted", "smolagents"])
def test_restore_equals_replay(pool_of_provider: SandboxPool, provider: str, backend: str) -> None:
    if backend == "smolagents":
        if provider == "docker":
            pytest.skip("the image does not contain smolagents")
        import_extra("smolagents")
    made = gym.make("CodingEnv-v0", pool=pool_of_provider, backend=backend, screen=None, step_timeout=20)
    with contextlib.closing(made.unwrapped) as env:

        @settings(
            max_examples=COUNT,
            deadline=None,
            database=None,
            # The same programs in each default run.
            derandomize=COUNT == DEFAULT_COUNT,
            # Without shrinking, which would take minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            program = data.draw(programs(backend))
            _check(env, program.prefix, program.suffix, backend)

        check()
