from __future__ import annotations

import contextlib

import gymnasium as gym
import pytest
from episodes import SMALL

from coding_gym.providers.docker import our_containers
from coding_gym.providers.owner import Owner


@pytest.fixture
def make():
    """Make environments in small sandboxes; ``num_envs`` makes a vector of them."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            options = {**SMALL, **options}
            made = gym.make_vec("CodingEnv-v0", **options) if "num_envs" in options else gym.make("CodingEnv-v0", **options)
            stack.callback(made.close)
            return made if "num_envs" in options else made.unwrapped

        yield make


@pytest.fixture
def containers(docker_engine):
    """Return the ids of this process's containers, whatever their state."""
    return lambda: {container.id for container, owner in our_containers(docker_engine) if owner == Owner.current()}
