"""Connections that break in the middle of a message."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import httpx
import pytest

from coding_gym.errors import ProviderError
from tests.faults.episodes import assert_infrastructure, assert_starts_over, shown
from tests.support.running_server import RunningServer

TO_SERVER, TO_CLIENT = "to the server", "to the client"


class Proxy:
    """Forwards bytes between clients and a server, and cuts a connection after a given number of bytes."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._budget: dict[str, int] = {}
        self._abort = False
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, direction: str, after: int, *, abort: bool = False) -> None:
        """Cut one connection after ``after`` more bytes in ``direction``, with a FIN or a reset."""
        self._abort = abort
        self._budget[direction] = after

    def close(self) -> None:
        for end in (self._listener, *self._open):
            _end(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                for end in (client, server):
                    self._open.add(end)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for ends in ((client, server, TO_SERVER), (server, client, TO_CLIENT)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                budget = self._budget.get(direction)
                if budget is None or len(data) < budget:
                    target.sendall(data)
                    if budget is not None:
                        self._budget[direction] = budget - len(data)
                    continue
                del self._budget[direction]
                target.sendall(data[:budget])
                break
        for end in (source, target):
            _end(end, abort=self._abort)


def _end(connection: socket.socket, *, abort: bool = False) -> None:
    # Without the shutdown, the other thread would continue to read.
    with contextlib.suppress(OSError):
        if abort:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
        connection.shutdown(socket.SHUT_RD if abort else socket.SHUT_RDWR)
    connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "2") as server:
        yield server


@pytest.fixture
def proxy(server):
    with contextlib.closing(Proxy(server.port)) as proxy:
        yield proxy


@pytest.fixture
def env(make, proxy):
    env = make(provider="remote", base_url=proxy.url)
    env.reset(seed=1)
    shown(env, "mark = 1; open('mark', 'w').close()")
    return env


# A frame header has 2 to 10 bytes; the request and the response of this step have several kilobytes.
@pytest.mark.parametrize("abort", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("after", [0, 1, 3, 100, 3000])
@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_cut_during_step_truncates_episode(env, proxy, direction, after, abort):
    proxy.cut(direction, after, abort=abort)
    assert_infrastructure(env.step("print('x' * 4000)" + "#" * 4000))
    assert_infrastructure(env.step("1"))
    assert_starts_over(env)


@pytest.mark.parametrize("after", [0, 1, 10])
@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_cut_during_reset_reconnects(env, proxy, direction, after):
    # The reset is retried once.
    proxy.cut(direction, after)
    assert_starts_over(env)


@pytest.mark.parametrize("after", [0, 1, 40])
@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_cut_while_connecting_reconnects(make, proxy, direction, after):
    proxy.cut(direction, after)
    assert_starts_over(make(provider="remote", base_url=proxy.url))


def test_truncated_answer_is_never_reused(env, proxy):
    proxy.cut(TO_CLIENT, 5)
    assert_infrastructure(env.step("'stale'"))
    env.reset()
    assert shown(env, "'fresh'") == "'fresh'\n"


def test_cut_leaves_other_connections_unaffected(env, make, server):
    with contextlib.closing(Proxy(server.port)) as other_proxy:
        other = make(provider="remote", base_url=other_proxy.url)
        other.reset(seed=1)
        other_proxy.cut(TO_SERVER, 1, abort=True)
        assert_infrastructure(other.step("1"))
        assert shown(env, "mark") == "1\n"


def test_every_cut_frees_its_server_session(make, proxy, server):
    env = make(provider="remote", base_url=proxy.url)
    for number in range(8):
        env.reset(seed=1)
        proxy.cut(TO_CLIENT, number)
        assert_infrastructure(env.step("import time; time.sleep(0.05)"))
    env.close()
    # A step over HTTP has a separate session, which requires a free slot.
    assert httpx.post(f"{server.url}/step", json={"action": {"code": "1"}}).status_code == 200


def test_unreachable_server_raises_on_reset(make, server):
    with contextlib.closing(Proxy(server.port)) as proxy:
        env = make(provider="remote", base_url=proxy.url, start_timeout=1)
        env.reset()
    assert_infrastructure(env.step("1"))
    with pytest.raises(ProviderError, match="coding-gym serve"):
        env.reset()
