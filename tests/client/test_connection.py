from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym.errors import CapacityError, ConfigurationError, ProtocolError, TransportError, TransportTimeoutError
from coding_gym_server.protocol import ResetOptions
from tests.support.running_server import RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "1") as server:
        yield server


@pytest.fixture
def listen():
    """Accept one connection on a free port, and serve it with a function in a thread."""
    with contextlib.ExitStack() as stack:

        def listen(serve):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError), listener.accept()[0] as connection:
                    serve(connection)

            thread = threading.Thread(target=accept, daemon=True)
            thread.start()
            stack.callback(thread.join, 5)
            return Address.of_url(f"127.0.0.1:{listener.getsockname()[1]}")

        yield listen


def forward(source, target, size):
    with contextlib.suppress(OSError):
        while data := source.recv(size):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_session_works_over_fragmenting_network(server, listen, size):
    def serve(connection):
        with socket.create_connection(("127.0.0.1", server.port)) as upstream:
            for end in (connection, upstream):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there = threading.Thread(target=forward, args=(connection, upstream, 65_536), daemon=True)
            there.start()
            forward(upstream, connection, size)
            there.join()

    with contextlib.closing(Session(listen(serve))) as session:
        session.ask_reset(ResetOptions(seed=1, episode_id="é" * 200))
        session.wait(timeout=30)
        assert session.state().episode_id == "é" * 200


def reset_another(address):
    with contextlib.closing(Session(address)) as session:
        session.ask_reset(ResetOptions())
        session.wait(timeout=30)


def test_full_server_always_raises_capacity_error(server):
    address = Address.of_url(server.url)
    with contextlib.closing(Session(address)) as first:
        first.ask_reset(ResetOptions())
        first.wait(timeout=30)
        for _ in range(20):
            with pytest.raises(CapacityError, match="1/1"):
                reset_another(address)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        b"\xff" * 99,
    ],
)
def test_foreign_server_raises_protocol_error(listen, answer):
    def serve(connection):
        connection.recv(65_536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    with pytest.raises((ProtocolError, TransportError)):
        Session(listen(serve), connect_timeout=5)


def test_silent_server_raises_timeout(listen):
    ended = threading.Event()
    with pytest.raises(TransportTimeoutError):
        Session(listen(lambda _: ended.wait(5)), connect_timeout=0.3)
    ended.set()


def test_closed_port_and_missing_socket_raise_transport_error(tmp_path):
    with pytest.raises(TransportError, match="refused"):
        Session(Address.of_url("127.0.0.1:9"))
    with pytest.raises(TransportError, match="No such file"):
        Session(Address.of_unix_socket(str(tmp_path / "no.sock")))


@pytest.mark.parametrize("url", ["ftp://host", "http://", "", "http://host:99999", "http://host:port", "host:port"])
def test_invalid_url_is_refused(url):
    with pytest.raises(ConfigurationError):
        Address.of_url(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "websocket"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000, "ws://127.0.0.1:8000/ws"),
        ("http://host/prefix/", "host", 80, "ws://host/prefix/ws"),
        ("https://http.example", "http.example", 443, "wss://http.example/ws"),
        ("http://[::1]:81", "::1", 81, "ws://[::1]:81/ws"),
    ],
)
def test_addresses(url, host, port, websocket):
    address = Address.of_url(url, token="secret")
    assert address.host_and_port == (host, port)
    assert address.websocket_url == websocket
    assert address.headers == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(address)
