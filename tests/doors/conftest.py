"""Environments with doors."""

from __future__ import annotations

from contextlib import ExitStack

import gymnasium as gym
import pytest

from coding_gym.sandbox.pool import SandboxPool
from tests.doors.servers import EchoServer
from tests.support.environments import OPTIONS

FETCH = """
import json, socket, urllib.error, urllib.request
def fetch(url, data=None, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
def raw(port, data, *, end=False):
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received
"""


@pytest.fixture(scope="module")
def doors_pool(provider):
    with SandboxPool(1, provider=provider, preload=(), sessions=8, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def echo():
    with EchoServer() as server:
        yield server


@pytest.fixture
def make(doors_pool):
    """Function that returns an environment in an episode, in which ``FETCH`` has run."""
    with ExitStack() as stack:

        def make(**options):
            env = gym.make("CodingEnv-v0", pool=doors_pool, **OPTIONS, **options).unwrapped
            stack.callback(env.close)
            env.reset(seed=1)
            env.step(FETCH)
            return env

        yield make
