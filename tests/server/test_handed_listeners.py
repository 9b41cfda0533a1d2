"""Listening sockets that a server is handed."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from coding_gym import SandboxPool
from coding_gym.client.address import Address
from coding_gym.client.http import get_json
from coding_gym.client.session import Session
from coding_gym.errors import TransportError
from coding_gym_server.protocol import LISTENERS_SUFFIX
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually


@pytest.fixture(scope="module")
def sandbox(provider) -> Iterator[object]:
    with SandboxPool(provider=provider, preload=(), sessions=8) as pool, pool.acquire() as lease:
        yield lease.sandbox


def hand_over(sandbox, *descriptors: int) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    client.connect(f"{sandbox.address.socket_path}{LISTENERS_SUFFIX}")
    socket.send_fds(client, [b"x"], list(descriptors))
    return client


@pytest.fixture
def handed(sandbox) -> Iterator[tuple[Address, socket.socket]]:
    """Address of a listener that the server has, and the connection over which it was handed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = hand_over(sandbox, listener.fileno())
        assert client.recv(1)
    with client:
        yield Address(f"http://127.0.0.1:{port}", token=sandbox.address.token), client


@pytest.mark.every_provider
def test_sessions_run_over_the_listener(sandbox, handed):
    address, _ = handed
    with contextlib.closing(Session(address)) as session:
        session.ask_step("print(6 * 7)")
        assert session.wait(timeout=30).observation.stdout == "42\n"
        assert get_json(address, "/health", timeout=30) == sandbox.health()


def test_token_is_required(handed):
    address, _ = handed
    with pytest.raises(Exception, match="token"):
        Session(Address(address.url, token="wrong"))


@pytest.mark.every_provider
def test_connections_end_with_that_of_the_owner(sandbox, handed):
    address, client = handed
    with contextlib.closing(Session(address)) as session:
        session.ask_step("import time; time.sleep(30)")
        client.close()
        with pytest.raises(TransportError):
            session.wait(timeout=30)
    with pytest.raises(TransportError):
        Session(address)
    assert sandbox.is_healthy()


def test_two_listeners_are_independent(sandbox, handed):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        second = hand_over(sandbox, listener.fileno())
        assert second.recv(1)
    second.close()
    with contextlib.closing(Session(handed[0])) as session:
        session.ask_step("1")
        assert session.wait(timeout=30).observation.exit_code == 0


def test_anything_else_is_refused_and_closed(sandbox, provider):
    reader, writer = os.pipe()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, hand_over(sandbox, writer) as first:
        os.close(writer)
        assert first.recv(1) == b""
        # The server has closed its copy of the other end.
        assert os.read(reader, 1) == b""
        with hand_over(sandbox, datagrams.fileno()) as second:
            assert second.recv(1) == b""
    os.close(reader)
    with contextlib.closing(hand_over(sandbox)) as none:
        assert none.recv(1) == b""
    assert sandbox.is_healthy()


def test_nothing_is_left(sandbox, provider):
    if provider == "docker":
        pytest.skip("the descriptors of the container's processes are those of another user")
    server = server_of(sandbox)
    before = server.num_fds()
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as listener, hand_over(sandbox, listener.fileno()) as client:
            assert client.recv(1)
    assert eventually(lambda: server.num_fds() <= before)
