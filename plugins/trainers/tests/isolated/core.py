# /// script
# dependencies = []
# ///
"""The package works with nothing but its own dependencies, and adapters to absent libraries say what to install."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import gymnasium as gym
import pytest

import coding_gym_trainers

ADAPTERS = [module.name for module in pkgutil.iter_modules(coding_gym_trainers.__path__)]


def test_optional_libraries_are_absent():
    assert [name for name in ("torch", "pandas", "hypothesis", "inspect_ai") if importlib.util.find_spec(name)] == []


def test_environment_runs_without_optional_libraries():
    env = gym.make("CodingEnv-v0", provider="local", preload=(), screen=None)
    env.reset(seed=1)
    observation, _, _, _, info = env.step("print(6 * 7)")
    env.close()
    assert (observation["stdout"], info["outcome"]) == ("42\n", "ok")


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapter_names_absent_library(name):
    try:
        importlib.import_module(f"coding_gym_trainers.{name}")
    except ImportError as error:
        absent = error
    else:
        return
    assert "pip install" in str(absent) or absent.name == "inspect_ai"


def test_adapters_are_found():
    assert {"inspect", "sb3", "trl"} <= set(ADAPTERS)
