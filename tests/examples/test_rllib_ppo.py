"""The environments of the example; its training needs RLlib and torch."""

from __future__ import annotations

import runpy
import sys
from unittest.mock import MagicMock

import numpy as np

from tests.examples.conftest import EXAMPLES

NAME = "rllib_ppo.py"


def test_without_rllib_the_installation_is_shown(run_example, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.rllib.algorithms.ppo", None)
    message, _ = run_example(NAME)
    assert "requires RLlib" in message
    assert "rllib-venv/bin/pip install" in message


def test_right_lines_are_rewarded_in_any_order(run_example, monkeypatch):
    for module in ("ray", "torch", "ray.rllib.algorithms.ppo", "ray.tune"):
        monkeypatch.setitem(sys.modules, module, MagicMock())
    make_envs = runpy.run_path(str(EXAMPLES / NAME))["make_envs"]
    envs = make_envs({"num_envs": 3, "provider": "local"})
    try:
        observations, _ = envs.reset(seed=1)
        assert observations in envs.observation_space
        assert not observations.any()
        rewards = []
        for actions in zip((0, 1, 2, 4, 5, 5, 5, 5), (0, 4, 2, 1, 5, 5, 5, 5), (0, 1, 2, 4, 3, 5, 5, 5), strict=True):
            observations, reward, terminations, truncations, _ = envs.step(np.array(actions))
            rewards.append(reward)
        assert np.sum(rewards, axis=0).tolist() == [5, 5, 1]
        assert not terminations.any()
        assert truncations.all()
        assert bytes(np.packbits(observations[0].astype(np.uint8))).rstrip(b"\0") == b"[36, 16, 4]\n"
    finally:
        envs.close()
