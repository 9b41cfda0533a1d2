"""Property-based tests of the proxy's parser: any bytes in any chunks, compared with a parser of whole streams."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coding_gym_server.display.proxy import COOKIE_NAME, Proxy

COOKIE, SERVER_COOKIE = bytes(range(16)), b"the server's own"
PATIENCE = 10.0

# Major opcodes that a server might assign to its extensions.
BIG_REQUESTS, RENDER, RANDR, GLX = 133, 139, 140, 149
DRAWING = {RENDER: frozenset({8, 26}), GLX: None}
NEUTRALIZED = frozenset({(RANDR, 7)})

REFUSED = frozenset({36, 109, 111, 112, 113})
LOSSES = frozenset({4, 5, 10, 11})
CORE_DRAWING = frozenset({8, *range(61, 78)})
CREATE_WINDOW, MAP_WINDOW, NO_OPERATION = 1, 8, 127
ROOT = 0x101


class Upstream:
    """Stand-in for Xvfb that records all data received, one connection after the other.

    Attributes:
        delay: Seconds before it reads from a connection.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("")
        self._listener.listen()
        self.address = self._listener.getsockname().decode()
        self._changed = threading.Condition()
        self._received: list[bytearray] = []
        self._ended = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def wait_for_bytes(self, count: int) -> int:
        """Wait until the latest connection has received ``count`` bytes; return the number of bytes received."""
        with self._changed:
            self._changed.wait_for(lambda: self._received and len(self._received[-1]) >= count, PATIENCE)
            return len(self._received[-1])

    def take(self) -> list[bytes]:
        """Return the data received per connection since the last call; all connections must be closed."""
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.address)
        with self._changed:
            # Connections are served in order: once this empty one has ended, all others have.
            assert self._changed.wait_for(lambda: self._ended and not self._received[self._ended - 1], PATIENCE)
            *received, _ = map(bytes, self._received)
            self._received, self._ended = [], 0
        return received

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    received = bytearray()
                    with self._changed:
                        self._received.append(received)
                    time.sleep(self.delay)
                    while data := connection.recv(65536):
                        with self._changed:
                            received += data
                            self._changed.notify_all()
                with self._changed:
                    self._ended += 1
                    self._changed.notify_all()


@dataclass
class Expected:
    """Expected effect of a stream of requests.

    Attributes:
        forwarded: The bytes forwarded to the server.
        losses: The number of bytes forwarded before each copy of the screen.
    """

    forwarded: bytearray = field(default_factory=bytearray)
    losses: list[int] = field(default_factory=list)


def requests_in(stream: bytes, order: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the position, length, major and minor opcode of each request with a complete header, parsed as X servers do."""
    position, has_big_requests = 0, False
    while len(stream) - position >= 4:
        major, minor, words = struct.unpack_from(f"{order}BBH", stream, position)
        has_big_requests |= (major, minor, words) == (BIG_REQUESTS, 0, 1)
        if words == 0 and has_big_requests:
            if len(stream) - position < 8:
                return
            (words,) = struct.unpack_from(f"{order}I", stream, position + 4)
            words = max(words, 2)
        length = 4 * max(words, 1)
        yield position, length, major, minor
        position += length


def expect(stream: bytes, order: str) -> Expected:
    expected, has_drawn = Expected(), False
    for position, length, major, minor in requests_in(stream, order):
        request = bytearray(stream[position : position + length])
        if major in CORE_DRAWING or (major in DRAWING and (DRAWING[major] is None or minor in DRAWING[major])):
            has_drawn = True
        elif major in LOSSES and has_drawn:
            expected.losses.append(position)
            has_drawn = False
        elif major in REFUSED or (major, minor) in NEUTRALIZED:
            request[0] = NO_OPERATION
        expected.forwarded += request
    if has_drawn:
        # At the end, the client disconnects.
        expected.losses.append(len(expected.forwarded))
    return expected


def setup_of(order: str, cookie: bytes, name: bytes = COOKIE_NAME) -> bytes:
    head = struct.pack(f"{order}BxHHHHxx", ord("l" if order == "<" else "B"), 11, 0, len(name), len(cookie))
    return head + name + bytes(-len(name) % 4) + cookie + bytes(-len(cookie) % 4)


class Run:
    """One client's connection through a proxy.

    Attributes:
        answer: The data sent to the client.
        received: The data received by the server, per connection.
        losses: The number of bytes of requests that the server had received at each copy of the screen.
        placed: The number of bytes of requests that the server had received before each window was placed, and the window.
    """

    def __init__(
        self,
        upstream: Upstream,
        chunks: Sequence[bytes],
        expected_losses: Sequence[int] = (),
        expected_placed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self._upstream = upstream
        self._expected_losses = expected_losses
        self._expected_placed = expected_placed or ()
        self.losses: list[int] = []
        self.placed: list[tuple[int, int]] = []
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("")
        listener.listen()
        with listener, selectors.DefaultSelector() as self._selector, socket.socket(socket.AF_UNIX) as client:
            self._proxy = Proxy(
                self._selector,
                listener,
                upstream.address,
                cookie=COOKIE,
                server_cookie=SERVER_COOKIE,
                before_erase=self._before_erase,
            )
            self._proxy.big_requests, self._proxy.drawing, self._proxy.neutralized = BIG_REQUESTS, DRAWING, NEUTRALIZED
            if expected_placed is not None:
                self._proxy.root, self._proxy.before_map = ROOT, self._before_map
            client.connect(listener.getsockname())
            for chunk in chunks:
                # The proxy may already have rejected the client.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.sendall(chunk)
                self._serve()
            client.setblocking(False)
            self.answer = b""
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                self.answer = client.recv(65536)
            client.close()
            self._serve()
            assert not self._proxy.pids
        self.received = upstream.take()

    def _serve(self) -> None:
        while (ready := self._selector.select(0)) or self._proxy.has_work:
            for key, events in ready:
                current = self._selector.get_map().get(key.fd)
                if current is not None and current.fileobj is key.fileobj:
                    key.data(events)
            self._proxy.process_deferred()

    def _before_erase(self) -> None:
        setup = len(setup_of("<", SERVER_COOKIE))
        expected = self._expected_losses[len(self.losses)]
        self.losses.append(self._upstream.wait_for_bytes(setup + expected) - setup)

    def _before_map(self, window: int) -> None:
        setup = len(setup_of("<", SERVER_COOKIE))
        expected, _ = self._expected_placed[len(self.placed)]
        self.placed.append((self._upstream.wait_for_bytes(setup + expected) - setup, window))


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.close()


ORDERS = st.sampled_from("<>")
MAJORS = st.sampled_from([*REFUSED, *LOSSES, 8, 61, 72, 77, 1, 18, 127, BIG_REQUESTS, RENDER, RANDR, GLX]) | st.integers(0, 255)
MINORS = st.sampled_from([0, 7, 8]) | st.integers(0, 255)
BODIES = st.integers(0, 6).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))


@st.composite
def streams(draw: st.DrawFn, order: str) -> bytes:
    """Generate well-formed requests, big requests, requests with wrong lengths, and garbage."""

    def request() -> bytes:
        body = draw(BODIES)
        words = 1 + len(body) // 4
        kind = draw(st.sampled_from(["plain"] * 4 + ["enable", "big", "wrong", "garbage"]))
        if kind == "garbage":
            return draw(st.binary(max_size=12))
        if kind == "enable":
            return struct.pack(f"{order}BBH", BIG_REQUESTS, 0, 1)
        head = (draw(MAJORS), draw(MINORS))
        if kind == "big":
            length = draw(st.sampled_from([words + 1, words + 1, 0, 1, 0xFFFFFFFF]))
            return struct.pack(f"{order}BBHI", *head, 0, length) + body
        if kind == "wrong":
            words = draw(st.sampled_from([0, 1, words + 1, 0xFFFF]))
        return struct.pack(f"{order}BBH", *head, words) + body

    return b"".join(request() for _ in range(draw(st.integers(0, 25))))


@st.composite
def chunks_of(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Split data at a few random positions, or after every byte."""
    if draw(st.integers(0, 9)) == 0:
        return [data[index : index + 1] for index in range(len(data))]
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


def check_stream(upstream: Upstream, stream: bytes, order: str, chunks: Sequence[bytes]) -> None:
    expected = expect(stream, order)
    run = Run(upstream, chunks, expected.losses)
    setup = setup_of(order, SERVER_COOKIE)
    assert run.received == [setup + expected.forwarded]
    assert run.losses == expected.losses
    opcodes = {(major, minor) for _, _, major, minor in requests_in(run.received[0][len(setup) :], order)}
    assert not opcodes & NEUTRALIZED
    assert not {major for major, _ in opcodes} & REFUSED


@settings(deadline=None, max_examples=100)
@given(st.data(), ORDERS)
def test_requests_are_filtered_wherever_chunks_end(upstream, data, order):
    stream = data.draw(streams(order))
    check_stream(upstream, stream, order, data.draw(chunks_of(setup_of(order, COOKIE) + stream)))


@settings(deadline=None, max_examples=50)
@given(st.data(), ORDERS, st.binary(max_size=200))
def test_random_bytes_are_parsed_as_requests(upstream, data, order, stream):
    check_stream(upstream, stream, order, data.draw(chunks_of(setup_of(order, COOKIE) + stream)))


@settings(deadline=None, max_examples=60)
@given(st.data(), ORDERS)
def test_new_windows_are_placed_before_they_are_mapped(upstream, data, order):
    stream, unplaced, placed = b"", set(), []
    windows = st.integers(1, 3)
    for kind in data.draw(st.lists(st.sampled_from(["create", "map", "other"]), max_size=20)):
        window = data.draw(windows)
        if kind == "create":
            parent = data.draw(st.sampled_from([ROOT, ROOT, 2]))
            stream += struct.pack(f"{order}BxHII", CREATE_WINDOW, 8, window, parent) + bytes(20)
            unplaced |= {window} if parent == ROOT else set()
        elif kind == "map":
            if window in unplaced:
                unplaced.remove(window)
                placed.append((len(stream), window))
            stream += struct.pack(f"{order}BxHI", MAP_WINDOW, 2, window)
        else:
            stream += struct.pack(f"{order}BxH", NO_OPERATION, 1)
    expected = expect(stream, order)
    run = Run(upstream, data.draw(chunks_of(setup_of(order, COOKIE) + stream)), expected.losses, placed)
    assert run.placed == placed
    assert run.received == [setup_of(order, SERVER_COOKIE) + expected.forwarded]


def test_last_requests_reach_slow_server(upstream, monkeypatch):
    monkeypatch.setattr(upstream, "delay", 0.1)
    # A socket's buffer holds a few hundred pieces, however small.
    stream = struct.pack("<BxH", NO_OPERATION, 1) * 500
    data = setup_of("<", COOKIE) + stream
    check_stream(upstream, stream, "<", [data[index : index + 1] for index in range(len(data))])


@pytest.mark.parametrize("order", "<>")
def test_many_losses_in_one_chunk_take_turns(upstream, order):
    pair = struct.pack(f"{order}BxHBxH", 61, 1, 4, 1)
    stream = pair * 50 + struct.pack(f"{order}BxH", 36, 1)
    assert len(expect(stream, order).losses) == 50
    check_stream(upstream, stream, order, [setup_of(order, COOKIE) + stream])


@settings(deadline=None, max_examples=60)
@given(st.data(), st.binary(max_size=80))
@example(None, b"\x6c" + bytes(11))
@example(None, setup_of("<", COOKIE[:-1]))
@example(None, setup_of(">", COOKIE, name=b"XDM-AUTHORIZATION-1"))
@example(None, setup_of("<", COOKIE[:-1] + b"\0"))
@example(None, struct.pack("<BxHHHHxx", 0x6C, 11, 0, 0xFFFF, 0xFFFF) + bytes(64))
def test_setup_without_cookie_reaches_no_server(upstream, data, setup):
    run = Run(upstream, [setup] if data is None else data.draw(chunks_of(setup)))
    assert run.received == []
    assert run.answer[:1] in (b"", b"\0")


@settings(deadline=None, max_examples=60)
@given(st.data(), ORDERS, st.binary(max_size=40))
def test_altered_setup_reaches_no_server(upstream, data, order, rest):
    setup = bytearray(setup_of(order, COOKIE))
    # Excluded are the first byte, which is the byte order, and the version and the padding, which do not matter.
    sizes, name, cookie = range(6, 10), range(12, 12 + len(COOKIE_NAME)), range(len(setup) - len(COOKIE), len(setup))
    position = data.draw(st.sampled_from([*sizes, *name, *cookie]))
    setup[position] ^= data.draw(st.integers(1, 255))
    assert Run(upstream, data.draw(chunks_of(bytes(setup) + rest))).received == []
