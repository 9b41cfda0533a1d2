"""Connections of strangers, who have no token: more than the server has descriptors, and they keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket

import httpx
import pytest

from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym_server.protocol import ResetOptions
from coding_gym_server.server.api.admission import Lobby
from tests.support.running_server import RunningServer
from tests.support.timing import eventually

TOKEN = secrets.token_hex(16)
DESCRIPTORS = 400
STRANGERS = 900
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
BEGINNINGS = {
    "nothing": b"",
    "the begin of a request": b"GET /state HTTP/1.1\r\nX: ",
    "a request that needs no token": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a wrong token": b"GET /state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
    "a body that does not end": b"POST /reset HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
    "a handshake without a token": (
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ),
}


# Only the server, not what it has started.
LIMITED = f"""
import resource
from coding_gym_server import __main__ as program
make_server = program._server
def limited(*arguments):
    resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
    return make_server(*arguments)
program._server = limited
program.main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("server")
    with RunningServer(directory, "--max-sessions", "4", token=TOKEN, program=("-P", "-c", LIMITED)) as server:
        yield server
        assert server.is_alive()
        assert "Too many open files" not in server.log.read_text()


@pytest.fixture
def come(server):
    """Function that lets strangers connect."""
    with contextlib.ExitStack() as stack:

        def connect(count, beginning):
            connections = []
            for _ in range(count):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                # The server may have closed it already.
                with contextlib.suppress(OSError):
                    connection.sendall(beginning)
                connections.append(connection)
            return connections

        yield connect


def run(session, code):
    session.ask_step(code)
    return session.wait(timeout=60).observation.stdout


def is_closed(connection):
    try:
        return not connection.recv(1 << 16, socket.MSG_DONTWAIT) or is_closed(connection)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("name", BEGINNINGS)
def test_strangers_keep_no_client_out(server, come, name):
    address = Address.of_url(server.url, token=TOKEN)
    with contextlib.closing(Session(address)) as early:
        early.ask_reset(ResetOptions())
        early.wait(timeout=60)
        strangers = come(STRANGERS, BEGINNINGS[name])
        for _ in range(3):
            assert httpx.get(f"{server.url}/state", headers=AUTHORIZED, timeout=60).status_code == 200
            with contextlib.closing(Session(address)) as late:
                assert run(late, "print(1)") == "1\n"
            assert run(early, "print(2)") == "2\n"
        # Also those that were not too many.
        assert eventually(lambda: all(map(is_closed, strangers)))
        # No time limit applies to clients.
        assert run(early, "print(3)") == "3\n"


class Transport:
    """Transport that knows only whether it has been aborted."""

    is_aborted = False

    def abort(self):
        self.is_aborted = True


def test_requests_that_are_being_answered_are_not_cut():
    async def check():
        lobby = Lobby(seconds=0.01)
        busy, idle, admitted = Transport(), Transport(), Transport()
        is_busy = True
        lobby.enter(busy, lambda: is_busy)
        lobby.enter(idle, lambda: False)
        lobby.enter(admitted, lambda: False)
        lobby.leave(admitted)
        while not idle.is_aborted:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert not busy.is_aborted
        is_busy = False
        while not busy.is_aborted:
            await asyncio.sleep(0.001)
        assert not admitted.is_aborted

    asyncio.run(check())
