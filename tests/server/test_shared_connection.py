"""``/ws/shared`` as a client sees it that sends any packets."""

from __future__ import annotations

import contextlib
import json
import time

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from coding_gym_server.protocol import MAX_FRAME_BYTES, PROTOCOL_VERSION, PROTOCOL_VERSION_HEADER
from coding_gym_server.protocol.shared import MAX_CHANNELS, MAX_PART_BYTES, PacketKind
from tests.support.running_server import RunningServer
from tests.support.timing import eventually

OPEN, MESSAGE, PART, TEXT, CLOSE = PacketKind
_ANSWER_WITHIN = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "20") as server:
        yield server
        assert server.is_alive()
        assert "coding_gym_server" not in server.log.read_text()


def step(code):
    return msgspec.msgpack.encode({"type": "step", "data": {"code": code}})


def interrupt():
    return msgspec.msgpack.encode({"type": "interrupt"})


class Shared:
    """A connection that sends and receives frames of packets."""

    def __init__(self, server, **headers):
        self._stack = contextlib.ExitStack()
        connection = connect(f"{server.ws_url}/shared", compression=None, max_size=100 << 20, additional_headers=headers)
        self.socket = self._stack.enter_context(connection)
        self.frames = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def send(self, *packets):
        self.socket.send(msgspec.msgpack.encode(packets))

    def receive(self):
        """Return the packets of the next frame."""
        frame = msgspec.msgpack.decode(self.socket.recv(timeout=_ANSWER_WITHIN))
        self.frames.append(frame)
        return frame

    def until(self, count, kind):
        """Return the bodies of the next packets by channel, all of which must be of one kind."""
        bodies = {}
        while len(bodies) < count:
            for channel, found, body in self.receive():
                assert found == kind, (channel, found, body)
                bodies[channel] = body
        return bodies

    def open(self, *channels):
        self.send(*((channel, OPEN, b"") for channel in channels))
        return self.until(len(channels), OPEN)

    def open_for_long_outputs(self, *channels):
        self.open(*channels)
        reset = msgspec.msgpack.encode({"type": "reset", "data": {"max_output_chars": 1_000_000}})
        self.send(*((channel, MESSAGE, reset) for channel in channels))
        self.outputs(len(channels))

    def outputs(self, count):
        found = self.until(count, MESSAGE)
        return {
            channel: msgspec.msgpack.decode(body)["data"]["observation"].get("stdout", "") for channel, body in found.items()
        }

    def closing_code(self):
        try:
            while True:
                self.socket.recv(timeout=_ANSWER_WITHIN)
        except ConnectionClosed as closed:
            return closed.rcvd.code


@pytest.fixture
def shared(server):
    with Shared(server) as shared:
        yield shared
    assert eventually(lambda: active_sessions(server) == 0)


def active_sessions(server):
    return httpx.get(f"{server.url}/health").json()["active_sessions"]


def test_steps_of_one_frame_are_answered_together(shared):
    ids = shared.open(0, 1, 2, 3)
    assert all(len(identifier) == 32 for identifier in ids.values())
    assert len(set(ids.values())) == 4
    for _ in range(2):
        shared.send(*((channel, MESSAGE, step(f"print({channel})")) for channel in ids))
        assert shared.outputs(4) == {channel: f"{channel}\n" for channel in ids}
    shared.frames.clear()
    for _ in range(20):
        shared.send(*((channel, MESSAGE, step("x = 1")) for channel in ids))
        shared.outputs(4)
    assert len(shared.frames) < 60


def test_slow_step_does_not_delay_others(shared):
    shared.open(0, 1)
    shared.send((0, MESSAGE, step("import time; time.sleep(60)")), (1, MESSAGE, step("print(1)")))
    assert shared.outputs(1) == {1: "1\n"}
    shared.send((1, MESSAGE, step("print(2)")))
    assert shared.outputs(1) == {1: "2\n"}
    shared.send((0, MESSAGE, interrupt()))
    assert shared.outputs(1) == {0: ""}


def test_interrupt_reaches_its_session_only(shared):
    shared.open(0, 1)
    shared.send(*((channel, MESSAGE, step("import time\ntime.sleep(2)\nprint('slept')")) for channel in (0, 1)))
    time.sleep(0.3)
    shared.send((0, MESSAGE, interrupt()))
    assert shared.outputs(1) == {0: ""}
    assert shared.outputs(1) == {1: "slept\n"}


def test_closed_channel_frees_its_session_only(shared, server):
    shared.open(0, 1)
    shared.send((0, MESSAGE, step("while True: pass")), (1, MESSAGE, step("x = 1")))
    shared.outputs(1)
    assert active_sessions(server) == 2
    shared.send((0, CLOSE, b""))
    assert shared.until(1, CLOSE) == {0: b"1000"}
    assert active_sessions(server) == 1
    # Late messages to a closed channel, and closing it again, have no effect.
    shared.send((0, MESSAGE, step("1")), (0, CLOSE, b""), (1, MESSAGE, step("print(x)")))
    assert shared.outputs(1) == {1: "1\n"}
    shared.open(0)


def test_session_that_ends_itself_closes_its_channel_only(shared):
    shared.open(0, 1)
    shared.send((0, MESSAGE, msgspec.msgpack.encode({"type": "close"})))
    assert shared.until(1, CLOSE) == {0: b"1000"}
    shared.send((1, MESSAGE, b"\xc1"), (0, MESSAGE, step("1")))
    error = msgspec.msgpack.decode(shared.until(1, MESSAGE)[1])
    assert error["data"]["code"] == "INVALID_JSON"
    shared.send((1, MESSAGE, step("print(1)")))
    assert shared.outputs(1) == {1: "1\n"}


@pytest.mark.parametrize("code", ["import time; time.sleep(20)", "x = 1"], ids=["busy", "idle"])
def test_flood_of_one_channel_closes_that_only(shared, code):
    shared.open(0, 1)
    shared.send((0, MESSAGE, step(code)), (1, MESSAGE, step("x = 1")))
    if code != "x = 1":
        shared.outputs(1)
    else:
        shared.outputs(2)
        # The first of these keeps the session busy.
        shared.send((0, MESSAGE, step("import time; time.sleep(20)")))
    for _ in range(2 * MAX_FRAME_BYTES // MAX_PART_BYTES + 1):
        shared.send((0, MESSAGE, b" " * MAX_PART_BYTES))
    assert shared.until(1, CLOSE) == {0: b"1008"}
    shared.send((1, MESSAGE, step("print(x)")))
    assert shared.outputs(1) == {1: "1\n"}


def test_parts_are_joined_up_to_the_limit(shared):
    shared.open(0, 1)
    padding = b"#" * MAX_PART_BYTES
    code = "print(len('" + "x" * (3 * MAX_PART_BYTES) + "'))"
    body = step(code)
    parts = [body[start : start + MAX_PART_BYTES] for start in range(0, len(body), MAX_PART_BYTES)]
    for part in parts[:-1]:
        shared.send((0, PART, part), (1, MESSAGE, step("x = 1")))
        shared.outputs(1)
    shared.send((0, MESSAGE, parts[-1]))
    assert shared.outputs(1) == {0: f"{3 * MAX_PART_BYTES}\n"}
    for _ in range(MAX_FRAME_BYTES // MAX_PART_BYTES + 1):
        shared.send((0, PART, padding))
    assert shared.until(1, CLOSE) == {0: b"1009"}
    shared.send((1, MESSAGE, step("print(x)")))
    assert shared.outputs(1) == {1: "1\n"}


def test_client_that_does_not_read_gets_everything_later(shared, server):
    channels = range(16)
    shared.open_for_long_outputs(*channels)
    rounds = 3
    for _ in range(rounds):
        shared.send(*((channel, MESSAGE, step("print('x' * 900_000)")) for channel in channels))
    time.sleep(2)
    with Shared(server) as other:
        other.open(0)
        other.send((0, MESSAGE, step("print(1)")))
        assert other.outputs(1) == {0: "1\n"}
    received = 0
    while received < rounds * len(channels):
        for _, kind, body in shared.receive():
            assert kind == MESSAGE
            assert len(body) > 900_000
            received += 1


def test_session_that_ends_while_client_does_not_read_loses_no_answers_of_others(shared):
    channels = range(8)
    shared.open_for_long_outputs(*channels)
    rounds = 6
    for _ in range(rounds):
        shared.send(*((channel, MESSAGE, step("print('x' * 900_000)")) for channel in channels))
        time.sleep(0.3)
    for channel in range(4):
        shared.send((channel, CLOSE, b""))
    time.sleep(0.5)
    answers, closed = dict.fromkeys(channels, 0), set()
    while len(closed) < 4 or min(answers[channel] for channel in range(4, 8)) < rounds:
        for channel, kind, body in shared.receive():
            if kind == CLOSE:
                closed.add(channel)
            else:
                assert kind == MESSAGE
                answers[channel] += len(body) > 900_000
    shared.send(*((channel, MESSAGE, step("print(1)")) for channel in range(4, 8)))
    assert shared.outputs(4) == dict.fromkeys(range(4, 8), "1\n")


def test_malformed_frame_of_client_that_does_not_read_ends_its_sessions(server):
    with Shared(server) as shared:
        shared.open(*range(16))
        shared.send(*((channel, MESSAGE, step("import time; print('x' * 20_000)")) for channel in range(16)))
        for _ in range(40):
            shared.send(*((channel, MESSAGE, step("print('x' * 20_000)")) for channel in range(16)))
        time.sleep(1)
        shared.socket.send(b"\xc1")
        assert eventually(lambda: active_sessions(server) == 0)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xc1", b"\x00", msgspec.msgpack.encode([[0]]), msgspec.msgpack.encode([[0, 9, b""]]), "[]"],
    ids=["empty", "invalid", "number", "short", "kind", "text"],
)
def test_malformed_frame_closes_connection(server, frame):
    with Shared(server) as shared:
        shared.open(0)
        shared.socket.send(frame)
        assert shared.closing_code() == 1008


def test_channel_cannot_be_opened_twice_or_without_end(server):
    with Shared(server) as shared:
        shared.open(0)
        shared.send((0, OPEN, b""))
        assert shared.closing_code() == 1008
    with Shared(server) as shared:
        shared.send(*((channel, OPEN, b"") for channel in range(MAX_CHANNELS + 1)))
        assert shared.closing_code() == 1008
    assert eventually(lambda: active_sessions(server) == 0)


def test_full_server_refuses_channels_beyond_its_limit(shared):
    shared.open(*range(20))
    shared.send((20, OPEN, b""))
    packets = []
    while len(packets) < 3:
        packets += shared.receive()
    assert [packet[:2] for packet in packets] == [[20, OPEN], [20, TEXT], [20, CLOSE]]
    assert packets[0][2] == b""
    assert json.loads(packets[1][2])["data"]["code"] == "CAPACITY_REACHED"
    shared.send((0, CLOSE, b""))
    shared.until(1, CLOSE)
    shared.open(21)


def test_broken_connection_ends_its_sessions_only(server):
    with Shared(server) as survivor:
        survivor.open(0)
        with Shared(server) as broken:
            broken.open(0, 1, 2)
            broken.send((0, MESSAGE, step("while True: pass")), (1, PART, b"x"))
            assert active_sessions(server) == 4
            # Without a closing handshake.
            broken.socket.socket.close()
        assert eventually(lambda: active_sessions(server) == 1)
        survivor.send((0, MESSAGE, step("print(1)")))
        assert survivor.outputs(1) == {0: "1\n"}
    assert eventually(lambda: active_sessions(server) == 0)


def test_fork_gets_a_channel_beyond_the_limit(shared):
    shared.open(*range(20))
    shared.send((0, MESSAGE, step("x = 5")))
    shared.outputs(1)
    shared.send((0, MESSAGE, msgspec.msgpack.encode({"type": "fork", "data": {"count": 1}})))
    (fork,) = msgspec.msgpack.decode(shared.until(1, MESSAGE)[0])["data"]["snapshots"]
    shared.send((20, OPEN, f"fork_of={fork}".encode()))
    assert len(shared.until(1, OPEN)[20]) == 32
    shared.send((20, MESSAGE, msgspec.msgpack.encode({"type": "restore", "data": {"snapshot": fork}})))
    shared.until(1, MESSAGE)
    shared.send((20, MESSAGE, step("print(x)")))
    assert shared.outputs(1) == {20: "5\n"}


def test_other_version_is_refused_in_each_channel(server):
    with Shared(server, **{PROTOCOL_VERSION_HEADER: str(PROTOCOL_VERSION + 1)}) as shared:
        assert shared.socket.response.headers[PROTOCOL_VERSION_HEADER] == str(PROTOCOL_VERSION)
        shared.send((0, OPEN, b""))
        packets = []
        while len(packets) < 3:
            packets += shared.receive()
        assert f"this server speaks {PROTOCOL_VERSION}" in json.loads(packets[1][2])["data"]["message"]


def test_token_is_required(tmp_path):
    with RunningServer(tmp_path, token="secret") as server:
        with pytest.raises(InvalidStatus, match="403"):
            Shared(server)
        with Shared(server, Authorization="Bearer secret") as shared:
            shared.open(0)
