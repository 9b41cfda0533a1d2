from __future__ import annotations

import pytest

from coding_gym.datasets import collect


@pytest.fixture
def collect_here(pool, tmp_path):
    """Collect with the shared sandbox pool, by default into a temporary directory."""

    def run(policy, episodes, *, env="CodingEnv-v0", path=tmp_path / "dataset", screen=None, **options):
        env_options = {"screen": screen, "step_timeout": 60, **options.pop("env_options", {})}
        return collect(
            env, policy, episodes, seed=options.pop("seed", 1), path=path, pool=pool, env_options=env_options, **options
        )

    return run
