"""Robustness of the server against clients that violate its protocol, WebSocket or HTTP, or that are too slow."""

from __future__ import annotations

import contextlib
import copy
import functools
import http.client
import itertools
import json
import math
import os
import socket
import struct
import threading
import time

import httpx
import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from websockets.frames import Opcode

from coding_gym_server.protocol import MAX_FRAME_BYTES
from tests.support.requirements import import_extra
from tests.support.running_server import RunningServer
from tests.support.timing import eventually, promptly

PLACES = 30
TOKEN = "correct horse"
CONT, TEXT, BINARY, CLOSE, PING, PONG = Opcode
STATE = b'{"type":"state"}'
_MB = 1_000_000

fuzz = functools.partial(
    settings, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=80
)


class Server(RunningServer):
    """Server with measurements of its resource usage."""

    places = None
    """Number of session slots available to a test."""

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def rss(self):
        return psutil.Process(self.process.pid).memory_info().rss

    def peak_rss(self):
        peak = 0
        for _ in range(35):
            peak = max(peak, self.rss())
            time.sleep(0.02)
        return peak

    def descriptors(self):
        # Only root can read the descriptors of the server.
        return len(os.listdir(f"/proc/{self.process.pid}/fd")) if os.getuid() == 0 else 0


class UnixServer(Server):
    """Server on a Unix socket."""

    def __init__(self, directory, *arguments):
        self.path = str(directory / "socket")
        # The server has a user of its own.
        directory.chmod(0o777)
        super().__init__(directory, "--uds", self.path, *arguments)

    @property
    def address(self):
        return self.path

    def _wait_until_healthy(self):
        assert eventually(self._listens)
        with Peer(self.address) as peer:
            assert peer.request(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200

    def _listens(self):
        # The path exists a moment before the socket listens.
        try:
            Peer(self.address).socket.close()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


class Peer:
    """Client that sends arbitrary bytes over a socket."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.socket.settimeout(60)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self._received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self, size):
        """Read ``size`` bytes, or fewer if the server closes the connection."""
        while len(self._received) < size and (data := self.socket.recv(65_536)):
            self._received += data
        data, self._received = self._received[:size], self._received[size:]
        return data

    def read_line(self):
        line = b""
        while not line.endswith(b"\n") and (byte := self.read(1)):
            line += byte
        return line

    def request(self, data):
        """Send an HTTP request; return the status and the body of the response."""
        self.send(data)
        return self.answer()

    def answer(self):
        status = int(self.read_line().split()[1])
        headers = {}
        while line := self.read_line().strip():
            name, _, value = line.lower().partition(b": ")
            headers[name] = value
        return status, self.read(int(headers.get(b"content-length", 0)))

    def upgrade(self, *headers, path="/ws"):
        """Perform the WebSocket handshake; return its status."""
        return self.request(handshake(*headers, path=path))[0]

    def ask(self, payload, opcode=TEXT):
        self.send(frame(payload, opcode))
        return self.message()

    def run(self, code):
        return self.ask(step(code))["data"]["observation"]["stdout"]

    def frame(self):
        """Read a frame; return (None, b"") at the end of the stream."""
        head = self.read(2)
        if not head:
            return None, b""
        size = head[1]
        if size > 125:
            size = int.from_bytes(self.read(2 if size == 126 else 8), "big")
        return Opcode(head[0] & 15), self.read(size)

    def message(self):
        opcode, payload = self.frame()
        assert opcode in (TEXT, BINARY), (opcode, payload)
        return json.loads(payload) if opcode is TEXT else msgspec.msgpack.decode(payload)

    def closing_code(self):
        """Read to the end of the stream; return the code of the close frame, or None if there is none."""
        code = None
        while True:
            opcode, payload = self.frame()
            if opcode is None:
                return code
            assert code is None, "a frame after the close frame"
            if opcode is CLOSE:
                code = int.from_bytes(payload[:2], "big")

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def handshake(*headers, path="/ws", method="GET"):
    usual = ["Host: x", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines = [f"{method} {path} HTTP/1.1", *usual, "Sec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==", *headers, "", ""]
    return b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)


def frame(payload, opcode=TEXT, *, fin=True, reserved=0, masked=True, size=None):
    size = len(payload) if size is None else size
    short = size if size < 126 else 126 if size < 65_536 else 127
    extended = b"" if short < 126 else struct.pack("!H" if short == 126 else "!Q", size)
    head = bytes([fin << 7 | reserved << 4 | opcode, masked << 7 | short]) + extended
    # A mask of zeros leaves the payload unchanged.
    return head + (bytes(4) if masked else b"") + payload


def step(code, **fields):
    return json.dumps({"type": "step", "data": {"code": code, **fields}}).encode()


def post(path, body, *headers):
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n%b" % (path, b"".join(b"%b\r\n" % header for header in headers), body)


def step_request(code):
    body = json.dumps({"action": {"code": code}}).encode()
    return post(b"/step", body, b"Content-Length: %d" % len(body))


def opened(stack, server):
    peer = stack.enter_context(Peer(server.address))
    assert peer.upgrade() == 101
    return peer


def free_places(server):
    """Open sessions until no slot is free; return the number of slots."""
    with contextlib.ExitStack() as stack:
        for number in itertools.count():
            if opened(stack, server).ask(STATE)["type"] == "error":
                return number
    raise AssertionError


def all_places_are_free(server):
    return eventually(lambda: free_places(server) == server.places)


class Bystander:
    """Session of another client, which runs steps continuously in the background."""

    def __init__(self, server, *headers):
        self._peer = Peer(server.address)
        assert self._peer.upgrade(*headers) == 101
        self._peer.run("count = 0")
        self._stop = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.steps = 0
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join(30)
        self._peer.socket.close()

    @contextlib.contextmanager
    def undisturbed(self):
        """Assert that within the context, the session keeps its variables and its steps are answered."""
        before = self.steps
        yield
        # The step in progress and the one after it.
        assert eventually(lambda: self.steps >= before + 2 or self._failure is not None)
        assert self._failure is None, self._failure

    def _run(self):
        try:
            while not self._stop.wait(0.004):
                with promptly():
                    assert self._peer.run("count += 1; count") == f"{self.steps + 1}\n"
                self.steps += 1
        except Exception as failure:
            self._failure = failure


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    arguments = ("--max-sessions", str(PLACES), "--step-timeout", "2")
    with Server(tmp_path_factory.mktemp("server"), *arguments) as server:
        # The bystander occupies one slot.
        server.places = PLACES - 1
        yield server
        assert server.is_alive()
        log = server.log.read_text()
        assert "coding_gym_server" not in log
        assert "Fatal error" not in log
        assert "Exception in ASGI" not in log


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("closed"), token=TOKEN) as server:
        yield server
        assert server.is_alive()


@pytest.fixture(scope="module")
def unix_server(tmp_path_factory):
    with UnixServer(tmp_path_factory.mktemp("unix"), "--max-sessions", "2") as server:
        server.places = 2
        yield server


@pytest.fixture(params=["tcp", "unix"])
def any_server(request):
    return request.getfixturevalue("server" if request.param == "tcp" else "unix_server")


@pytest.fixture(scope="module")
def bystander(server):
    with contextlib.closing(Bystander(server)) as bystander:
        yield bystander


@pytest.fixture(autouse=True)
def undisturbed(bystander):
    with bystander.undisturbed():
        yield


@pytest.fixture
def peer(server):
    with Peer(server.address) as peer:
        assert peer.upgrade() == 101
        yield peer


# Messages

_OPTIONS = {
    "seed": 3,
    "episode_id": "name",
    "step_timeout": 1.5,
    "cpu_timeout": 1,
    "max_output_chars": 300,
    "show_value": False,
    "else": [1, {"a": None}],
}
REQUESTS = [
    {"type": "reset", "data": _OPTIONS},
    {"type": "step", "data": {"code": "1", "timeout_s": 1.5, "metadata": {"a": [1, "b", {"c": 2.5}]}}},
    {"type": "state"},
    {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}},
]
ODD = [None, True, -1, 0, -0.0, 1.5, 10**30, 2**64 - 1, -(2**63), 1e300, "", "1", "\0é\U0001f389", [], [[]], {}, {"a": 1}]
ODD_IN_MSGPACK = [
    *(value for value in ODD if value != 10**30),
    math.nan,
    -math.inf,
    b"",
    b"\xff",
    msgspec.msgpack.Ext(0, b""),
    msgspec.msgpack.Ext(-128, b"x" * 300),
    msgspec.Raw(b"\xd6\xff\xff\xff\xff\xff"),  # a timestamp
    msgspec.Raw(b"\x81\x01\x02"),  # a key that is not a string
    msgspec.Raw(b"\x81\x90\x02"),
]
ENCODERS = {TEXT: lambda message: json.dumps(message).encode(), BINARY: msgspec.msgpack.encode}


def check_answer(peer, answer):
    """Check that a response is valid, and that an error is the client's fault; return whether the session continues."""
    assert answer["type"] in ("observation", "state", "mcp", "error")
    if answer["type"] == "error":
        assert answer["data"]["code"] in ("INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "SESSION_ERROR")
        assert answer["data"]["message"]
        if answer["data"]["code"] == "SESSION_ERROR":
            assert peer.frame() == (CLOSE, struct.pack("!H", 1000))
            return False
    return True


@pytest.fixture
def sender(server):
    """Function that sends frames over one connection, which is replaced whenever the server closes it."""
    with contextlib.ExitStack() as stack:
        peers = []

        def send(payload, opcode):
            if not peers:
                peers.append(opened(stack, server))
            answer = peers[0].ask(payload, opcode)
            if not check_answer(peers[0], answer):
                peers.pop().socket.close()
            return answer

        yield send


def places_in(value, path=()):
    """Return the paths of all values in a message, including the message itself."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in children for found in places_in(child, (*path, key)))]


def with_replaced(message, path, value):
    if not path:
        return value
    message = copy.deepcopy(message)
    target = functools.reduce(lambda node, key: node[key], path[:-1], message)
    target[path[-1]] = value
    return message


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["type"])
def test_replaced_fields_never_break_server(sender, opcode, request_):
    for path in places_in(request_):
        for value in ODD if opcode is TEXT else ODD_IN_MSGPACK:
            sender(ENCODERS[opcode](with_replaced(request_, path, value)), opcode)


def _mutated(encoded):
    places = st.integers(0, len(encoded))
    flip = st.tuples(st.just("flip"), places, st.integers(1, 255))
    cut = st.tuples(st.just("cut"), places, places)
    double = st.tuples(st.just("double"), places, places)
    insert = st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=9))

    def mutate(mutations):
        data = encoded
        for kind, at, how in mutations:
            match kind:
                case "flip" if at < len(data):
                    data = data[:at] + bytes([data[at] ^ how]) + data[at + 1 :]
                case "cut":
                    data = data[: min(at, how)] + data[max(at, how) :]
                case "double":
                    data = data[: max(at, how)] + data[min(at, how) :]
                case "insert":
                    data = data[:at] + how + data[at:]
        return data

    return st.lists(flip | cut | double | insert, min_size=1, max_size=4).map(mutate)


@fuzz(max_examples=150)
@given(st.sampled_from(REQUESTS).flatmap(lambda request: _mutated(msgspec.msgpack.encode(request))))
def test_mutated_msgpack_never_breaks_server(sender, data):
    assume(b"\xa5close" not in data)
    sender(data, BINARY)


@fuzz(max_examples=150)
@given(st.sampled_from(REQUESTS).flatmap(lambda request: _mutated(json.dumps(request).encode())))
def test_mutated_json_never_breaks_server(sender, data):
    sender(data.decode(errors="replace").encode(), TEXT)


@fuzz(max_examples=100)
@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_break_server(sender, data):
    sender(data, BINARY)
    sender(data.decode(errors="replace").encode(), TEXT)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"type":"state","type":"mcp","type":"state"}', "VALIDATION_ERROR"),
        ('{"type":"step","data":{"code":"1/0","code":"1"}}', "observation"),
        ('{"type":"reset","data":{"seed":-0}}', "observation"),
        ('{"type":"reset","data":{"seed":NaN}}', "INVALID_JSON"),
        ('{"type":"reset","data":{"step_timeout":Infinity}}', "INVALID_JSON"),
        ('{"type":"reset","data":{"step_timeout":1e999}}', "INVALID_JSON"),
        ('{"type":"reset","data":{"step_timeout":-1e-999}}', "VALIDATION_ERROR"),
        ('{"type":"reset","data":{"seed":%s}}' % ("9" * 4_000), "observation"),
        ('{"type":"reset","data":{"seed":%s}}' % ("9" * 100_000), "INVALID_JSON"),
        ('{"type":"mcp","data":{"id":%s}}' % ("9" * 4_000), "mcp"),
        ('{"type":"mcp","data":{"id":1e999}}', "INVALID_JSON"),
        ('{"type":"mcp","data":{"id":%s}}' % ("[" * 100_000 + "]" * 100_000), "INVALID_JSON"),
        ('{"type":"step","data":{"code":"1","metadata":%s}}' % ('{"a":' * 100_000 + "1" + "}" * 100_000), "INVALID_JSON"),
        ('{"type":%s}' % ("[" * 100_000 + "]" * 100_000), "INVALID_JSON"),
        ('{"type":"step","data":{"code":"\\ud800"}}', "INVALID_JSON"),
        ('{"type":"step","data":{"code":"\\u0000"}}', "observation"),
        ('{"type":"step","data":{"code":"\\x00"}}', "INVALID_JSON"),
        ('{"type":"step","data":{"code":"1\n"}}', "INVALID_JSON"),
        ('{"type":"state",}', "INVALID_JSON"),
        ('\0{"type":"state"}', "INVALID_JSON"),
        ('{"type":"state"}\0', "INVALID_JSON"),
        (' \n{ "type" :\t"state" }\r\n', "state"),
    ],
    ids=lambda value: value[:40],
)
def test_json_edge_cases_are_answered(sender, text, kind):
    answer = sender(text.encode(), TEXT)
    assert (answer["data"]["code"] if answer["type"] == "error" else answer["type"]) == kind


def mcp(identifier):
    """Return an MCP request with an encoded id, which need not be well-formed."""
    return b"\x82\xa4type\xa3mcp\xa4data\x81\xa2id" + identifier


@pytest.mark.parametrize(
    "promise",
    [
        b"\xd9\x05ab",
        b"\xda\xff\xffab",
        b"\xdb\xff\xff\xff\xffab",
        b"\xc4\x05ab",
        b"\xc6\xff\xff\xff\xff",
        b"\xdc\xff\xff\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xde\xff\xff\xa1a\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\xc7\x05\x01ab",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xd8\x01ab",
        b"\xcf\x01",
        b"\xcb",
        b"",
    ],
)
def test_msgpack_with_overstated_lengths_is_refused(server, sender, promise):
    before = server.rss()
    for data in (promise, mcp(promise), b"\x82\xa4type\xa4step\xa4data\x81\xa4code" + promise):
        assert sender(data, BINARY)["data"]["code"] == "INVALID_JSON"
    assert server.rss() - before < 50 * _MB


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (mcp(b"\xc1"), "INVALID_JSON"),
        (mcp(b"\xa2\xff\xfe"), "INVALID_JSON"),
        (mcp(b"\xa3\xed\xa0\x80"), "INVALID_JSON"),
        (mcp(b"\xc7\x0c\xff" + b"\xff" * 12), "INVALID_JSON"),  # timestamps out of range
        (mcp(b"\xd7\xff" + b"\xff" * 8), "INVALID_JSON"),
        (mcp(b"\xd6\xff" + b"\xff" * 4), "mcp"),
        (mcp(b"\xd4\x05a"), "mcp"),
        (mcp(b"\xc4\x01\xff"), "mcp"),
        (mcp(b"\x81\x80\x01"), "INVALID_JSON"),
        (mcp(b"\x91" * 100_000 + b"\x01"), "INVALID_JSON"),
        (mcp(b"\x81\xa1a" * 100_000 + b"\x01"), "INVALID_JSON"),
        (b"\x81\xa4type" + b"\x91" * 100_000 + b"\x01", "INVALID_JSON"),
        (mcp(b"\x01\x01"), "INVALID_JSON"),
        (b"\x83\xa4type\xa3mcp" + mcp(b"\x01")[1:], "mcp"),  # duplicate key
        (b"\x81\xc4\x04type\xa5state", "UNKNOWN_TYPE"),
        (b"\x81\xa4type\xc4\x05state", "UNKNOWN_TYPE"),
    ],
)
def test_msgpack_edge_cases_are_answered(sender, data, kind):
    answer = sender(data, BINARY)
    assert (answer["data"]["code"] if answer["type"] == "error" else answer["type"]) == kind


def test_nesting_near_decoder_limit_is_answered(peer):
    for depth in range(900, 1000):
        texts = (b'{"type":"mcp","data":{"id":%b}}', b'{"type":%b}', b'{"type":"step","data":{"code":%b}}')
        frames = [frame(text % (b"[" * depth + b"]" * depth)) for text in texts]
        nested = b"\x91" * depth + b"\x01"
        frames += [frame(data, BINARY) for data in (mcp(nested), b"\x81\xa4type" + nested)]
        for data in frames:
            peer.send(data)
            # Too deeply nested for the decoder of this process.
            _, answer = peer.frame()
            assert b"mcp" in answer or b"error" in answer
            assert b"EXECUTION_ERROR" not in answer


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize(
    "message",
    [
        {"type": "\0" * _MB},
        {"type": [1] * _MB},
        {"type": "state", "x" * _MB: 1},
        {"type": "step", "data": {"code": "1", "\0" * _MB: 1}},
    ],
    ids=["type", "list", "field", "action"],
)
def test_errors_quote_large_messages_briefly(peer, opcode, message):
    peer.send(frame(ENCODERS[opcode](message), opcode))
    answered_as, answer = peer.frame()
    assert answered_as is opcode
    assert b"error" in answer
    assert len(answer) < 20_000


def test_message_of_maximum_size_is_answered(peer):
    assert peer.ask(STATE + b" " * (MAX_FRAME_BYTES - len(STATE)))["type"] == "state"


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_oversized_frame_is_refused_by_header(any_server, size):
    with Peer(any_server.address) as peer:
        peer.upgrade()
        peer.send(frame(b"", BINARY, size=size))
        assert peer.closing_code() == 1009


def test_oversized_fragmented_message_is_refused(peer):
    peer.send(frame(b"x", fin=False) + frame(b"", CONT, size=MAX_FRAME_BYTES))
    assert peer.closing_code() == 1009


# WebSocket


@pytest.mark.parametrize(
    ("data", "code"),
    [
        *((frame(STATE, reserved=bits), 1002) for bits in range(1, 8)),
        *((frame(STATE, opcode), 1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
        (frame(STATE, masked=False), 1002),
        (frame(STATE, CONT), 1002),
        (frame(STATE, fin=False) + frame(STATE), 1002),
        (frame(STATE, fin=False) + frame(STATE, BINARY), 1002),
        (frame(b"", PING, fin=False), 1002),
        (frame(b"", CLOSE, fin=False), 1002),
        (frame(b"x" * 126, PING), 1002),
        (frame(b"x" * 126, PONG), 1002),
        (frame(b"\x03\xe8" + b"x" * 124, CLOSE), 1002),
        (frame(b"\x03", CLOSE), 1002),
        (frame(STATE, fin=False) + frame(b"\x03\xe8", CLOSE), 1002),
        *((frame(struct.pack("!H", code), CLOSE), 1002) for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000)),
        (frame(b"\xff\xff", CLOSE), 1002),
        (frame(b"\x03\xe8\xff", CLOSE), 1007),
        (frame(b"\xff"), 1007),
        (frame(b'{"type":"\xed\xa0\x80"}'), 1007),
        (frame(b"\xc3", fin=False) + frame(b"(", CONT), 1007),
        (frame(b"\xc3"), 1007),
        (frame(b"\xff") * 2, 1007),
        (frame(b"\xff") + frame(b"", 3), 1002),
        (frame(b"\xff") + frame(b"\x0b\xb8", CLOSE), 3000),
        *((frame(struct.pack("!H", code), CLOSE), code) for code in (1000, 1001, 1003, 1014, 3000, 4999)),
        (frame(b"\x03\xe8bye \xc3\xa9", CLOSE), 1000),
        (frame(b"", CLOSE), 0),
    ],
)
def test_protocol_violations_have_correct_closing_code(any_server, data, code):
    with Peer(any_server.address) as peer:
        assert peer.upgrade() == 101
        peer.send(data)
        assert peer.closing_code() == code


def test_protocol_violation_ends_running_session(server):
    before = len(server.family())
    with Peer(server.address) as peer:
        peer.upgrade()
        peer.run("import subprocess; p = subprocess.Popen(['sleep', '300'])")
        peer.send(frame(step("import time; time.sleep(60)", timeout_s=60)))
        time.sleep(0.1)
        peer.send(frame(b"", 3))
        assert peer.closing_code() == 1002
    # The recycled executor may remain as a spare.
    assert eventually(lambda: len(server.family()) <= before + 2)


_controls = st.builds(lambda opcode, payload: frame(payload, opcode), st.sampled_from([PING, PONG]), st.binary(max_size=125))


@fuzz()
@given(
    message=st.sampled_from([step("'\U0001f389é'"), STATE, b'{"type":"mcp","data":{"id":"\xc3\xa9"}}']),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    between=st.lists(st.lists(_controls, max_size=2), min_size=7, max_size=7),
    segments=st.integers(1, 40),
)
def test_control_frames_may_interleave_message_fragments(server, message, cuts, between, segments):
    bounds = [0, *sorted(min(cut, len(message)) for cut in cuts), len(message)]
    data = b""
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        data += frame(message[start:end], CONT if number else TEXT, fin=number == len(bounds) - 2) + b"".join(between[number])
    with Peer(server.address) as peer:
        peer.upgrade()
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), segments):
            peer.send(data[start : start + segments])
        peer.send(frame(b"", CLOSE))
        frames = list(iter(peer.frame, (None, b"")))
    pongs = [payload for opcode, payload in frames if opcode is PONG]
    sent = [control[6:] for controls in between[: len(bounds) - 1] for control in controls if control[0] & 15 == PING]
    assert pongs == sent
    # A client that closes immediately may miss the response, but never gets a wrong one.
    answers = [json.loads(payload) for opcode, payload in frames if opcode is TEXT]
    assert [answer["type"] for answer in answers] in ([], ["observation"], ["state"], ["mcp"])
    assert frames[-1][0] is CLOSE


@fuzz(max_examples=100)
@given(st.lists(st.binary(max_size=40) | _controls | st.sampled_from([frame(STATE), frame(step("1"))]), max_size=6))
def test_arbitrary_bytes_after_handshake_never_break_server(server, pieces):
    with Peer(server.address) as peer:
        peer.upgrade()
        peer.send(b"".join(pieces))
        peer.half_close()
        with contextlib.suppress(ConnectionResetError):
            assert peer.closing_code() in (None, 0, *range(1000, 5000))


def test_many_tiny_fragments_use_bounded_memory(server, peer):
    before = server.rss()
    peer.send(frame(b"x", fin=False) + frame(b"x", CONT, fin=False) * 400_000)
    # Answered after all preceding fragments have been read.
    peer.send(frame(b"read", PING))
    assert peer.frame() == (PONG, b"read")
    assert server.rss() - before < 15 * _MB


def test_pings_of_non_reading_client_use_bounded_memory(server, peer):
    before = server.rss()
    for _ in range(100):
        peer.send(frame(b"x" * 125, PING) * 2_000)
    assert server.rss() - before < 15 * _MB


def test_fast_sender_does_not_starve_other_clients(peer, bystander):
    with bystander.undisturbed():
        before = bystander.steps
        peer.send(frame(b"x" * 40, PING) * 400_000)
        # The server has read nearly all of it, and several steps in the meantime.
        assert bystander.steps > before + 3


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        # Where there are two, websockets 15 answers differently.
        (handshake(method="POST"), (400, 405)),
        (handshake(method="PUT"), (400, 405)),
        (handshake(path="/nope"), 403),
        (handshake(path="http://x/ws"), 403),
        (handshake(path="/w%73"), 101),
        (handshake(path="/\xff"), (400, 403)),
        (handshake("Sec-WebSocket-Key: again"), 400),
        (handshake("Sec-WebSocket-Version: 12"), 400),
        (handshake().replace(b"MDAw", b"MDA"), 400),
        (handshake().replace(b"MDAw", b"\xff\xff"), (400, 500)),
        (handshake().replace(b"Version: 13", b"Version: 0"), 400),
        (handshake().replace(b"Sec-WebSocket-Key", b"X"), 400),
        (handshake("X: 1\x01"), 400),
        (handshake("X-Odd: \u00ff"), 101),
        (handshake("Sec-WebSocket-Extensions: permessage-deflate"), 101),
        (handshake("Sec-WebSocket-Extensions: ;;;"), 101),
        (handshake("Sec-WebSocket-Protocol: a, b"), 101),
        (handshake("X-Long: " + "x" * 9_000), (400, 431)),
        (handshake(*["X-Many: 1"] * 200), (400, 431)),
        (handshake(path="/" + "x" * 9_000), (400, 414)),
        (handshake("Content-Length: 5"), 400),
        (handshake("Transfer-Encoding: chunked"), 400),
    ],
)
def test_odd_handshakes_are_answered(any_server, request_, status):
    with Peer(any_server.address) as peer:
        assert peer.request(request_)[0] in (status if isinstance(status, tuple) else (status,))
        if status != 101:
            peer.half_close()
            assert peer.read(1) == b""


# Dropped connections

CONVERSATIONS = {
    "session": handshake() + frame(step("1")) + frame(b"", PING) + frame(step("x" * 200), fin=False) + frame(STATE, CONT),
    "body": post(b"/step", b'{"action": {"code": "1"}}', b"Content-Length: 25"),
    "chunks": post(b"/step", b'9\r\n{"action"\r\n10\r\n: {"code": "1"}}\r\n0\r\n\r\n', b"Transfer-Encoding: chunked"),
}
WAYS = {"close": lambda peer: peer.socket.close(), "reset": Peer.reset, "half": Peer.half_close}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_connection_cut_anywhere_leaks_nothing(any_server, conversation, way):
    data = CONVERSATIONS[conversation]
    before = any_server.descriptors()
    head = data.index(b"\r\n\r\n") + 4
    for at in {*range(0, head, 31), *range(head - 2, len(data), 7)}:
        with Peer(any_server.address) as peer, contextlib.suppress(ConnectionError):
            if way != "reset" and at > head and conversation == "session":
                peer.upgrade()
                peer.send(data[head:at])
            else:
                peer.send(data[:at])
            WAYS[way](peer)
            if way == "half":
                # The server treats a half-closed connection as closed.
                while peer.read(1):
                    pass
    # The executor last used and a spare one each keep a few pipes open.
    assert eventually(lambda: any_server.descriptors() <= before + 10)
    assert all_places_are_free(any_server)


def test_slow_headers_do_not_block_server(server):
    before = server.descriptors()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.address)) for _ in range(200)]
        for byte in b"GET /state HTTP/1.1\r\nX: ":
            for peer in peers:
                peer.send(bytes([byte]))
        with promptly():
            assert httpx.get(f"{server.url}/health", timeout=60).json()["status"] == "healthy"
        # Connections that complete their requests get a response.
        assert peers[0].request(b"x\r\n\r\n")[0] == 200
    assert eventually(lambda: server.descriptors() <= before + 10)


def test_thousands_of_short_connections_leak_nothing(server):
    def churn(number):
        for turn in range(number):
            with Peer(server.address) as peer, contextlib.suppress(ConnectionError):
                match turn % 4:
                    case 0:
                        pass
                    case 1:
                        peer.upgrade()
                    case 2:
                        peer.send(handshake() + frame(STATE))
                        peer.reset()
                    case 3:
                        assert peer.request(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200

    churn(400)
    before, descriptors, family = server.rss(), server.descriptors(), len(server.family())
    churn(3_000)
    assert eventually(lambda: server.descriptors() <= descriptors + 10)
    assert len(server.family()) <= family + 2
    assert server.rss() - before < 10 * _MB
    assert all_places_are_free(server)


# Clients that do not read


def test_unread_output_uses_bounded_memory(server, bystander):
    family, descriptors = len(server.family()), server.descriptors()
    sizes = []
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            peers = [opened(stack, server) for _ in range(3)]
            before = server.rss()
            for peer in peers:
                peer.send(frame(b'{"type":"reset","data":{"max_output_chars":1000000}}'))
                peer.send(frame(step("print('x' * 999_000)")) * 300)
            with bystander.undisturbed():
                # The output of all steps would be 900 MB.
                assert server.peak_rss() - before < 60 * _MB
        assert eventually(lambda: server.descriptors() <= descriptors + 10)
        assert eventually(lambda: len(server.family()) <= family + 2)
        assert all_places_are_free(server)
        sizes.append(server.rss())
    assert sizes[-1] - sizes[0] < 15 * _MB


@pytest.mark.parametrize("ahead", ["close message", "megabytes"])
def test_session_of_non_reading_client_is_freed(any_server, ahead):
    before = any_server.rss()
    with Peer(any_server.address) as peer:
        peer.upgrade()
        peer.send(frame(b'{"type":"reset","data":{"max_output_chars":20000000}}'))
        peer.message()
        peer.send(frame(step("print('x' * 19_000_000)")))
        if ahead == "close message":
            peer.send(frame(b'{"type":"close"}'))
            assert all_places_are_free(any_server)
            # Responses to earlier requests can still be read.
            assert len(peer.message()["data"]["observation"]["stdout"]) == 19_000_001
            assert peer.frame() == (CLOSE, struct.pack("!H", 1000))
        else:
            # The response has begun to arrive; most of it remains unread.
            assert peer.read(1)
            with pytest.raises(ConnectionError):
                peer.send(frame(b" " * _MB) * 100)
            assert all_places_are_free(any_server)
    assert any_server.rss() - before < 100 * _MB


def test_non_reading_unix_socket_client_leaks_nothing(unix_server):
    descriptors = unix_server.descriptors()
    with Peer(unix_server.address) as peer:
        peer.upgrade()
        peer.send(frame(step("print('x' * 16_000)")) * 200)
        time.sleep(0.5)
        assert free_places(unix_server) == 1
    assert all_places_are_free(unix_server)
    assert eventually(lambda: unix_server.descriptors() <= descriptors + 10)


# Clients without the token

ROUTES = [("GET", "/metadata"), ("GET", "/schema"), ("GET", "/state"), ("GET", "/openapi.json"), ("GET", "/nope")]
ROUTES += [("POST", "/step"), ("POST", "/reset"), ("POST", "/mcp"), ("DELETE", "/state"), ("GET", "/ws")]


@pytest.fixture(scope="module")
def first_client(closed_server):
    with contextlib.closing(Bystander(closed_server, f"Authorization: Bearer {TOKEN}")) as bystander:
        yield bystander


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [b"Authorization:"],
        [b"Authorization: Bearer"],
        [b"Authorization: Bearer "],
        [b"Authorization: correct horse"],
        [b"Authorization: Basic Y29ycmVjdCBob3JzZQ=="],
        [b"Authorization: Basic correct horse"],
        [b"Authorization: Bearercorrect horse"],
        [b"Authorization: Bearer  correct horse"],
        [b"Authorization: Bearer\tcorrect horse"],
        [b"Authorization: Bearer correct hors"],
        [b"Authorization: Bearer orrect horse"],
        [b"Authorization: Bearer correct horsee"],
        [b"Authorization: Bearer Correct horse"],
        [b"Authorization: Bearer correct  horse"],
        [b"Authorization: Bearer correct\xa0horse"],
        [b"Authorization: Bearer \xff\xfe"],
        [b"Authorization: Bearer \xef\xbd\x83orrect horse"],
        [b"Authorization: Bearer wrong", b"Authorization: Bearer wrong, too"],
        [b"Authorization: Bearer correct", b"Authorization: horse"],
        [b"Authorization: Bearer wrong, Bearer correct horse"],
        [b"Authorization : Bearer correct horse"],
        [b"X-Authorization: Bearer correct horse"],
        [b"Proxy-Authorization: Bearer correct horse"],
        [b"Cookie: Authorization=Bearer correct horse"],
        [b"Authorization: Bearer " + b"correct horse" * 5_000],
    ],
    ids=lambda headers: (b"; ".join(headers)[:60] or b"none").decode("latin-1"),
)
def test_requests_without_valid_token_are_refused(closed_server, first_client, headers):
    refusals = (400, 401)
    with first_client.undisturbed():
        for method, path in ROUTES:
            with Peer(closed_server.address) as peer:
                lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x", b"Content-Length: 2", *headers, b"", b"{}"]
                status, body = peer.request(b"\r\n".join(lines))
                assert status in refusals, (method, path)
                assert TOKEN.encode() not in body
        with Peer(closed_server.address) as peer:
            assert peer.upgrade(*headers) in (400, 403, 431)
            peer.half_close()
            assert peer.read(1) == b""
        with Peer(closed_server.address) as peer:
            lines = [b"GET /health HTTP/1.1", b"Host: x", *headers, b"", b""]
            assert peer.request(b"\r\n".join(lines))[0] in (200, 400)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION", "aUTHORIZATION"])
def test_authorization_header_name_is_case_insensitive(closed_server, name):
    header = f"{name}: Bearer {TOKEN}"
    with Peer(closed_server.address) as peer:
        assert peer.upgrade(header) == 101
        assert peer.ask(STATE)["type"] == "state"
    with Peer(closed_server.address) as peer:
        assert peer.request(f"GET /state HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/health/",
        "//health",
        "/HEALTH",
        "/health/../state",
        "/health%2f..%2fstate",
        "/health;/state",
        "/health%00",
        "/state?/health",
        "/state#/health",
        "/state?token=correct%20horse",
        "http://x/state",
        "*",
    ],
)
def test_only_exact_health_path_needs_no_token(closed_server, path):
    for method in ("GET", "POST", "OPTIONS"):
        with Peer(closed_server.address) as peer:
            assert peer.request(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())[0] in (400, 401)
    with Peer(closed_server.address) as peer:
        assert peer.request(handshake(path=path))[0] in (400, 403)


def test_connection_stays_usable_after_refused_request(closed_server):
    with Peer(closed_server.address) as peer:
        assert peer.request(post(b"/step", b"x" * 100_000, b"Content-Length: 100000"))[0] == 401
        assert peer.request(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
        assert peer.request(b"GET /state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer correct horse\r\n\r\n")[0] == 200


# HTTP


METHODS = {"get", "post", "put", "delete"}
FILES = {"": {"get"}, "/{path}": {"get", "put", "delete"}}
PROCESSES = {
    "/exec": {"post"},
    "/processes": {"get", "post"},
    "/processes/{process}": {"get"},
    **{f"/processes/{{process}}/{name}": {"post"} for name in ("stdin", "signal", "terminal")},
}
# Routes that are not OpenEnv's, which the document lists.
OWN_ROUTES = {
    "/execute": {"post"},
    "/contexts": {"get", "post"},
    "/contexts/{id}": {"delete"},
    "/contexts/{id}/restart": {"post"},
    "/contexts/{id}/interrupt": {"post"},
    **{f"{prefix}/files{path}": methods for prefix in ("", "/sessions/{session}") for path, methods in FILES.items()},
    **{
        f"{prefix}{path}": methods
        for prefix in ("/sessions/{session}", "/contexts/{session}")
        for path, methods in PROCESSES.items()
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.fixture(scope="module")
def http_client():
    """Client with a new connection for each request."""
    with httpx.Client(limits=httpx.Limits(max_keepalive_connections=0)) as client:
        yield client


@pytest.fixture(scope="module")
def api(server):
    return import_extra("schemathesis").openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize("path", ["/health", "/metadata", "/schema", "/state"])
def test_get_responses_conform_to_openapi_document(api, path):
    @fuzz(max_examples=5)
    @given(api[path]["get"].as_strategy())
    def check(case):
        case.call_and_validate()

    check()


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/reset", "positive"),
        ("/reset", "negative"),
        ("/step", "positive"),
        ("/step", "negative"),
        # MCP answers every request, so there are no negative cases.
        ("/mcp", "positive"),
    ],
)
def test_post_responses_conform_to_openapi_document(server, api, path, mode):
    modes = import_extra("schemathesis").GenerationMode

    @fuzz(max_examples=25)
    @given(api[path]["post"].as_strategy(generation_mode=modes(mode)))
    def check(case):
        if mode == "positive" and isinstance(case.body, dict):
            # 1.0 is an integer according to JSON Schema, but not to msgspec.
            assume(not any(isinstance(case.body.get(name), float) for name in ("seed", "max_output_chars")))
            # The schema does not specify safe paths, Base64, the installed backends, or whether there is a screen.
            assume(not any(case.body.get(name) for name in ("files", "backend", "screen", "window_manager")))
            # Nor does it specify the names of keys.
            assume(not (case.body.get("action") or {}).get("inputs"))
        response = case.call_and_validate()
        assert response.status_code in (200, 400, 404, 422, 500, 503)
        assert response.status_code != 500 or "kernel is not available" in response.text

    check()
    assert all_places_are_free(server)


@pytest.mark.parametrize("path", ["/execute", "/contexts"])
def test_bodies_of_the_interpreter_are_validated(server, http_client, path):
    names = st.sampled_from(["code", "context_id", "language", "env_vars", "timeout", "quotes", "cwd"])

    @fuzz(max_examples=25)
    @given(st.dictionaries(names, JSON) | JSON)
    def check(body):
        # What Python would run is for other tests.
        assume(not (isinstance(body, dict) and isinstance(body.get("code"), str)))
        response = http_client.post(f"{server.url}{path}", json=body)
        assert response.status_code in (200, 400, 404, 422, 500, 503)
        assert response.status_code != 500 or "kernel is not available" in response.text

    check()
    # Each context occupies a slot.
    for context in httpx.get(f"{server.url}/contexts").json():
        httpx.delete(f"{server.url}/contexts/{context['id']}")
    assert all_places_are_free(server)


def test_own_routes_refuse_requests_without_token_and_large_bodies(closed_server, server, http_client):
    for path, methods in OWN_ROUTES.items():
        for method in methods:
            assert http_client.request(method, f"{closed_server.url}{path}").status_code == 401, path
        if "post" in methods:
            large = http_client.post(f"{server.url}{path}", content=b" " * (MAX_FRAME_BYTES + 1))
            # Routes of a session look for it first.
            assert large.status_code == (404 if "{" in path else 413), path


def test_refusals_conform_to_openapi_document(closed_server, server, api, http_client):
    for path, item in api.raw_schema["paths"].items():
        for method in item.keys() & METHODS:
            operation = api[path][method]
            if path != "/health":
                operation.validate_response(http_client.request(method, f"{closed_server.url}{path}"))
            if method == "post" and "requestBody" in item[method]:
                large = http_client.post(f"{server.url}{path}", content=b" " * (MAX_FRAME_BYTES + 1))
                assert large.status_code == 413
                operation.validate_response(large)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_unsupported_methods_return_405_with_allow_header(server, api, http_client, method):
    documented = {path: item.keys() & METHODS for path, item in api.raw_schema["paths"].items()}
    for path, operations in (documented | OWN_ROUTES).items():
        if method.lower() not in operations:
            response = http_client.request(method, f"{server.url}{path}")
            assert response.status_code == 405, path
            assert {name.strip().lower() for name in response.headers["allow"].split(",")} - {"head"} == operations


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(b"/reset", b"{}", b"Content-Length: -1"), 400),
        (post(b"/reset", b"{}", b"Content-Length: two"), 400),
        (post(b"/reset", b"{}", b"Content-Length: 0x2"), 400),
        (post(b"/reset", b"{}", b"Content-Length: 2", b"Content-Length: 3"), 400),
        (post(b"/reset", b"{}", b"Content-Length: 2, 2"), 400),
        (post(b"/reset", b"{}", b"Content-Length: 99999999999999999999"), 400),
        (post(b"/reset", b"0\r\n\r\n", b"Content-Length: 2", b"Transfer-Encoding: chunked"), 400),
        (post(b"/reset", b"2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 200),
        (post(b"/reset", b"2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n", b"Transfer-Encoding: chunked"), 200),
        (post(b"/reset", b"x\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400),
        (post(b"/reset", b"-2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400),
        (post(b"/reset", b"fffffffffffffffff\r\n{}", b"Transfer-Encoding: chunked"), 400),
        (post(b"/reset", b"2\r\n{}x", b"Transfer-Encoding: chunked"), 400),
        (post(b"/reset", b"{}", b"Content-Length: 2", b"Content-Type: text/plain"), 200),
        (post(b"/reset", b"{}", b"Content-Length: 2", b"Content-Type: \xff"), 200),
        (post(b"/reset", b"a=1", b"Content-Length: 3", b"Content-Type: application/x-www-form-urlencoded"), 422),
        (post(b"/reset", b"\x1f\x8b\x08\x00", b"Content-Length: 4", b"Content-Encoding: gzip"), 422),
        (post(b"/reset", b"", b"Content-Length: 0"), 200),
        (post(b"/reset", b"\xff\xfe{}", b"Content-Length: 4"), 422),
        (post(b"/reset", b"{" * 300_000, b"Content-Length: 300000"), 422),
        (post(b"/reset", b"1" * 300_000, b"Content-Length: 300000"), 422),
        (post(b"/step", b"{}", b"Content-Length: 2"), 422),
        (b"POST /reset HTTP/1.1\r\n\r\n", 200),
        (b"POST /reset HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        (b"BREW /reset HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET " + b"/x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /state HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 200),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
    ids=lambda value: value[:90].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_odd_requests_are_answered(server, request_, status):
    with Peer(server.address) as peer:
        assert peer.request(request_)[0] == status


@fuzz(max_examples=100)
@given(
    start=st.sampled_from([b"", b"GET ", b"POST /step HTTP/1.1\r\n", post(b"/reset", b"", b"Content-Length: 9")]),
    data=st.binary(max_size=80),
)
def test_arbitrary_bytes_instead_of_request_are_refused(server, start, data):
    with Peer(server.address) as peer, contextlib.suppress(ConnectionResetError):
        peer.send(start + data)
        peer.half_close()
        if line := peer.read_line():
            assert line.startswith(b"HTTP/1.1 ")
            assert int(line.split()[1]) < 500


PATHS_WITH_BODY = [b"/reset", b"/step", b"/mcp"]


@pytest.mark.parametrize("path", PATHS_WITH_BODY)
def test_body_of_maximum_size_is_accepted(server, path):
    with Peer(server.address) as peer:
        request = post(path, b" " * MAX_FRAME_BYTES, b"Content-Length: %d" % MAX_FRAME_BYTES)
        assert peer.request(request)[0] in (200, 422)


@pytest.mark.parametrize("path", PATHS_WITH_BODY)
@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**63 - 1])
def test_oversized_body_is_refused_by_header(server, path, size):
    with Peer(server.address) as peer:
        status, body = peer.request(post(path, b"", b"Content-Length: %d" % size, b"Expect: 100-continue"))
    assert status == 413
    assert "detail" in json.loads(body)


@pytest.mark.parametrize("path", PATHS_WITH_BODY)
def test_endless_chunks_are_refused_with_bounded_memory(server, path):
    before = server.rss()
    with Peer(server.address) as peer:
        peer.send(post(path, b"", b"Transfer-Encoding: chunked"))
        for _ in range(100):
            peer.send(b"%x\r\n%b\r\n" % (_MB, b" " * _MB))
        assert peer.answer()[0] == 413
        assert server.rss() - before < 60 * _MB
        # The rest of the body has been discarded, so the connection can be reused.
        assert peer.request(b"0\r\n\r\nGET /state HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200


def test_disconnect_within_next_request_frees_session(any_server):
    body = json.dumps({"action": {"code": "import time; time.sleep(60)"}, "timeout_s": 60}).encode()
    with Peer(any_server.address) as peer:
        peer.send(post(b"/step", body, b"Content-Length: %d" % len(body)))
        assert eventually(lambda: free_places(any_server) == any_server.places - 1)
        peer.send(b"G")
    assert all_places_are_free(any_server)


def test_pipelined_requests_are_answered_in_order(any_server):
    with Peer(any_server.address) as peer:
        peer.send(step_request("print(1)") + step_request("print(2)"))
        for number in (1, 2):
            status, body = peer.answer()
            assert (status, json.loads(body)["observation"]["stdout"]) == (200, f"{number}\n")


def test_connection_serves_consecutive_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        for number in range(20):
            connection.request("POST", "/step", json.dumps({"action": {"code": str(number)}}))
            assert json.loads(connection.getresponse().read())["observation"]["stdout"] == f"{number}\n"
        connection.request("POST", "/step", "{")
        assert connection.getresponse().read()
        connection.request("GET", "/state")
        assert connection.getresponse().status == 200
