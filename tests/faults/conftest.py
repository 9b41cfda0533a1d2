from __future__ import annotations

import contextlib

import gymnasium as gym
import pytest

from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.ownership import OwnerProcess
from tests.faults.episodes import SMALL


@pytest.fixture
def make():
    """Make environments in small sandboxes; a vector environment if ``num_envs`` is given."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            options = {**SMALL, **options}
            made = gym.make_vec("CodingEnv-v0", **options) if "num_envs" in options else gym.make("CodingEnv-v0", **options)
            stack.callback(made.close)
            return made if "num_envs" in options else made.unwrapped

        yield make


@pytest.fixture
def impatient(monkeypatch):
    """Shorten the timeouts after which an unresponsive server is given up."""
    monkeypatch.setattr("coding_gym.envs.episode._ANSWER_SLACK", 2.0)
    monkeypatch.setattr("coding_gym.envs.coding_env.RESET_TIMEOUT", 5.0)
    monkeypatch.setattr("coding_gym.sandbox.managed._CONNECT_SECONDS", 5.0)
    monkeypatch.setattr("coding_gym.sandbox.process_tree._EXIT_TIMEOUT", 1.0)


@pytest.fixture
def containers(docker_engine):
    """Function that returns the ids of the containers that this process has started since the fixture, in any state."""

    def find():
        return {container.id for container, owner in our_containers(docker_engine) if owner == OwnerProcess.current()}

    shared = find()
    return lambda: find() - shared
