"""Servers that doors lead to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["EchoServer", "tcp_server"]


class EchoServer(ThreadingHTTPServer):
    """HTTP server whose responses tell what it has received: the request line, ``Host``, and the length of the body.

    ``/events`` is a stream of server-sent events whose second one waits for ``go_on``; ``/close`` a response without a length;
    ``/early`` one that does not wait for the request's body; ``/hang`` none, until the client is gone, which sets ``was_left``.

    Args:
        context: TLS of the server, None without.
        name: Appears in its responses.
    """

    daemon_threads = True
    request_queue_size = 128
    # http.server sends head and body apart, and waits 40 ms for the acknowledgment in between.
    disable_nagle_algorithm = True

    def __init__(self, *, context: ssl.SSLContext | None = None, name: str = "echo") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.go_on = threading.Event()
        self.was_left = threading.Event()
        self.requests: list[str] = []
        self.connections = 0
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, request, client_address) -> None:
        """Clients may go at any time."""

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EchoServer

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None:
        pass

    def _respond(self) -> None:
        self.server.requests.append(self.requestline)
        if self.path.endswith("/early"):
            self._send(b"early", 413)
            self.close_connection = True
            return
        length = self._read_body()
        if self.path.endswith("/events"):
            self._send_events()
        elif self.path.endswith("/close"):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"to the end")
            self.close_connection = True
        elif self.path.endswith("/hang"):
            if not self.connection.recv(1):
                self.server.was_left.set()
            self.close_connection = True
        else:
            key = self.headers.get("Authorization", "")
            self._send(f"{self.server.name}|{self.requestline}|{self.headers['Host']}|{length}|{key}".encode())

    do_GET = do_POST = do_PUT = do_HEAD = _respond

    def _read_body(self) -> int:
        length = 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                length += len(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            part = len(self.rfile.read(min(left, 1 << 20)))
            left, length = left - part, length + part
        return length

    def _send(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, data in enumerate([b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\n', b"data: [DONE]\n\n", b""]):
            if number == 1:
                self.server.go_on.wait(60)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve each connection in a thread by a function; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run(connection: socket.socket) -> None:
            with connection:
                serve(connection)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
