"""The server as seen by third-party clients: OpenEnv's messages over a WebSocket, and its HTTP routes."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import httpx
import jsonschema
import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import connect

from coding_gym_server.isolation.probe import probe
from tests.support.running_server import RunningServer, gone_within
from tests.support.sandbox_processes import command_line
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually, promptly

SLEEP = "import time; time.sleep({})"
CODES = {"INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR", "SESSION_ERROR"}
_ANSWER_WITHIN = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "60") as server:
        yield server
        assert server.is_alive()
        # uvicorn itself logs one of the fuzzed frames.
        assert "coding_gym_server" not in server.log.read_text()


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    """Server with a single session slot."""
    with RunningServer(tmp_path_factory.mktemp("small"), "--max-sessions", "1") as server:
        yield server


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=_ANSWER_WITHIN) as client:
        yield client


class Wire:
    """WebSocket connection with JSON in text frames or msgpack in binary frames."""

    def __init__(self, url, encoding="json", **options):
        self.encoding = encoding
        self._stack = contextlib.ExitStack()
        connection = connect(url, compression=None, max_size=100 << 20, open_timeout=10, close_timeout=1, **options)
        self.socket = self._stack.enter_context(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stack.close()

    def send(self, message):
        self.socket.send(json.dumps(message) if self.encoding == "json" else msgspec.msgpack.encode(message))

    def receive(self, timeout=_ANSWER_WITHIN):
        frame = self.socket.recv(timeout=timeout)
        assert isinstance(frame, str if self.encoding == "json" else bytes)
        return json.loads(frame) if self.encoding == "json" else msgspec.msgpack.decode(frame)

    def ask(self, message):
        self.send(message)
        return self.receive()

    def reset(self, **options):
        return self.observe({"type": "reset", "data": options})

    def step(self, code, **fields):
        return self.observe({"type": "step", "data": {"code": code, **fields}})

    def stdout(self, code, **fields):
        observation = self.step(code, **fields)["observation"]
        assert observation["stderr"] == ""
        return observation["stdout"]

    def state(self):
        answer = self.ask({"type": "state"})
        assert answer["type"] == "state"
        return answer["data"]

    def observe(self, message):
        answer = self.ask(message)
        assert answer["type"] == "observation", answer
        assert set(answer) == {"type", "data"}
        return answer["data"]

    def error(self, message):
        answer = self.ask(message)
        assert answer["type"] == "error", answer
        assert isinstance(answer["data"]["message"], str)
        return answer["data"]

    def is_silent(self, seconds=0.1):
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False


@pytest.fixture(params=["json", "msgpack"])
def wire(server, request):
    with Wire(server.ws_url, request.param) as wire:
        yield wire


@pytest.fixture
def json_wire(server):
    with Wire(server.ws_url) as wire:
        yield wire


# Episodes


def check_observation(data):
    assert set(data) == {"observation", "reward", "done", "metadata"}
    assert type(data["reward"]) is float
    assert math.isfinite(data["reward"])
    assert data["done"] is False
    assert set(data["observation"]) == {"stdout", "stderr", "exit_code", "metadata"}
    assert data["observation"]["metadata"] == data["metadata"] != {}
    assert type(data["observation"]["exit_code"]) is int


def test_episode_messages_are_answered(wire):
    for data in (wire.reset(), wire.step("x = 20"), wire.step("x + 1"), wire.step("1 / 0"), wire.reset(seed=1)):
        check_observation(data)
    assert "NameError" in wire.step("x")["observation"]["stderr"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "reset"},
        {"type": "reset", "data": None},
        {"type": "reset", "data": {}},
        {"type": "reset", "data": {"task_id": 5, "split": "train", "nested": {"a": [1, None]}}},
        {"type": "reset", "data": {"seed": None, "episode_id": None}},
    ],
)
def test_every_reset_form_is_accepted(wire, message):
    observation = wire.observe(message)["observation"]
    assert (observation["stdout"], observation["stderr"], observation["exit_code"]) == ("", "", 0)


def test_reset_applies_seed_and_episode_id(wire):
    draws = []
    for seed in (3, 3, 4):
        wire.reset(seed=seed, episode_id=f"episode é {seed}")
        assert wire.state() == {"episode_id": f"episode é {seed}", "step_count": 0, "last_exit_code": 0}
        draws.append(wire.stdout("import random; random.random()"))
    assert draws[0] == draws[1] != draws[2]


def test_missing_episode_id_is_generated(wire):
    names = set()
    for _ in range(2):
        wire.reset()
        names.add(wire.state()["episode_id"])
    assert len(names) == 2
    assert all(len(name) >= 16 for name in names)


@pytest.mark.parametrize("seed", [0, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_large_seeds_are_reproducible(wire, seed):
    wire.reset(seed=seed)
    first = wire.stdout("import random; random.random()")
    wire.reset(seed=seed)
    assert wire.stdout("import random; random.random()") == first


@pytest.mark.parametrize("seed", [2**64, 10**30])
def test_oversized_seed_is_answered_without_new_process(server, json_wire, seed):
    json_wire.reset()
    time.sleep(0.5)
    before = len(server.family())
    for _ in range(5):
        json_wire.ask({"type": "reset", "data": {"seed": seed}})
    json_wire.reset()
    assert json_wire.stdout("1") == "1\n"
    time.sleep(0.5)
    assert len(server.family()) <= before + 2


def test_step_count_restarts_with_episode(wire):
    assert wire.state() == {"episode_id": None, "step_count": 0, "last_exit_code": 0}
    wire.step("1")
    assert wire.state()["step_count"] == 1
    wire.reset()
    assert wire.state()["step_count"] == 0
    for number, (code, exit_code) in enumerate([("1", 0), ("1/0", 1), ("import sys; sys.exit(7)", 7)], 1):
        wire.step(code)
        state = wire.state()
        assert state["step_count"] == number
        assert type(state["step_count"]) is int
        assert state["last_exit_code"] == exit_code
    wire.error({"type": "step", "data": {"cod": "1"}})
    assert wire.state()["step_count"] == 3


def test_step_before_reset_starts_episode(wire):
    assert wire.stdout("x = 5") == ""
    assert wire.stdout("x") == "5\n"


def test_action_metadata_is_accepted(wire):
    assert wire.stdout("1", metadata={"any": ["thing"]}) == "1\n"


def test_step_timeout_applies_to_one_step(wire):
    wire.reset()
    with promptly():
        data = wire.step("while True: pass", timeout_s=0.3)
    assert data["observation"]["exit_code"] == 124
    assert data["metadata"]["outcome"] == "timeout"
    check_observation(data)


@pytest.mark.parametrize("timeout", [math.inf, math.nan, 1e300])
def test_non_finite_timeouts_never_break_server(server, timeout):
    with Wire(server.ws_url, "msgpack") as wire:
        wire.reset()
        wire.stdout("x = 3")
        wire.ask({"type": "step", "data": {"code": "x", "timeout_s": timeout}})
        wire.ask({"type": "reset", "data": {"step_timeout": timeout, "cpu_timeout": timeout}})
        wire.ask({"type": "step", "data": {"code": "1"}})
        wire.reset()
        assert wire.stdout("4") == "4\n"


def test_sandbox_failure_truncates_episode(tmp_path):
    with RunningServer(tmp_path, "--spare-workers", "0") as server, Wire(server.ws_url) as wire:
        wire.reset(rewards=["safety", "quality"])
        wire.send({"type": "step", "data": {"code": SLEEP.format(20)}})
        time.sleep(0.3)
        children = psutil.Process(server.process.pid).children()
        (zygote,) = [child for child in children if "coding_gym_server.zygote" in command_line(child)]
        (root,) = zygote.children()
        root.kill()
        data = wire.receive()["data"]
        assert data["metadata"] == {"outcome": "infrastructure", "state_lost": True, "truncated": True}
        assert data["observation"]["exit_code"] == 255
        check_observation(data)
        assert wire.step("1")["metadata"] == {"outcome": "ok", "state_lost": False}


# Invalid requests


@pytest.mark.parametrize(
    "message",
    [
        {"type": "step", "data": {"code": "1", "codes": "2"}},
        {"type": "step", "data": {"code": 1}},
        {"type": "step", "data": {"code": None}},
        {"type": "step", "data": {}},
        {"type": "step", "data": None},
        {"type": "step", "data": "1"},
        {"type": "step"},
        {"type": "step", "data": {"action": {"code": "1"}}},
        {"type": "step", "data": {"code": "1"}, "timeout_s": 5},
        {"type": "step", "data": {"code": "1", "timeout_s": 0}},
        {"type": "step", "data": {"code": "1", "timeout_s": -1}},
        {"type": "step", "data": {"code": "1", "timeout_s": "5"}},
        {"type": "step", "data": {"code": "1", "metadata": []}},
        {"type": "reset", "data": {"seed": -1}},
        {"type": "reset", "data": {"seed": 1.5}},
        {"type": "reset", "data": {"seed": "1"}},
        {"type": "reset", "data": {"episode_id": "x" * 256}},
        {"type": "reset", "data": {"episode_id": 5}},
        {"type": "reset", "data": {"step_timeout": 0}},
        {"type": "reset", "data": {"max_output_chars": 1}},
        {"type": "reset", "data": []},
        {"type": "reset", "extra": 1},
        {"type": "state", "data": {}},
        {"type": "close", "data": {}},
        {"type": "mcp"},
        {"type": "mcp", "data": 5},
    ],
)
def test_invalid_messages_are_validation_errors(wire, message):
    error = wire.error(message)
    assert error["code"] == "VALIDATION_ERROR"
    assert len(error["errors"]) >= 1
    assert all({"type", "loc", "msg", "input"} <= set(fault) for fault in error["errors"])
    assert wire.stdout("1") == "1\n"


def test_validation_error_has_location(wire):
    (fault,) = wire.error({"type": "step", "data": {"code": 1}})["errors"]
    assert fault["loc"][-1] == "code"


@pytest.mark.parametrize("kind", ["jump", "", "RESET", None, 5, ["reset"], {"a": 1}, True])
def test_unknown_message_type_is_refused(wire, kind):
    assert wire.error({"type": kind})["code"] == "UNKNOWN_TYPE"
    assert wire.stdout("1") == "1\n"


def test_missing_message_type_is_refused(wire):
    assert wire.error({})["code"] == "UNKNOWN_TYPE"
    assert wire.error({"data": {"code": "1"}})["code"] == "UNKNOWN_TYPE"


@pytest.mark.parametrize(
    "text", ["", "{", "nope", '{"type": "state"', "{}{}", "\ufeff{}", "NaN", '{"type": "\\ud800"}', "[" * 100_000]
)
def test_invalid_json_is_refused(json_wire, text):
    json_wire.socket.send(text)
    assert json_wire.receive()["data"]["code"] == "INVALID_JSON"
    assert json_wire.stdout("1") == "1\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"{}",
        b"\xd9\x05ab",
        b"\x91" * 100_000,
        b"\x81\xa4type\xa2\xff\xff",
        b"\x81\x90\x01",
        b"\x81\xc0\xc0",
    ],
)
def test_invalid_msgpack_is_answered_in_msgpack(server, data):
    with Wire(server.ws_url, "msgpack") as wire:
        wire.socket.send(data)
        answer = wire.receive()
        assert answer["type"] == "error"
        assert answer["data"]["code"] in CODES
        if answer["data"]["code"] != "SESSION_ERROR":
            assert wire.stdout("1") == "1\n"


def test_deeply_nested_message_is_answered(wire):
    nested = value = {}
    for _ in range(500):
        value["a"] = value = {}
    wire.observe({"type": "step", "data": {"code": "1", "metadata": nested}})


@pytest.mark.parametrize("document", [[], [1], ["reset"], 5, "text", None, True])
def test_non_object_message_ends_session(wire, document):
    assert wire.error(document)["code"] == "SESSION_ERROR"
    with pytest.raises(ConnectionClosedOK) as caught:
        wire.receive()
    assert caught.value.rcvd.code == 1000


def test_close_message_closes_without_answer(wire):
    wire.reset()
    wire.send({"type": "close"})
    with pytest.raises(ConnectionClosedOK) as caught:
        wire.receive()
    assert caught.value.rcvd.code == 1000


def test_invalid_utf8_closes_with_1007(server):
    with connect(server.ws_url, compression=None) as client:
        client.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosedError) as caught:
            client.recv(timeout=30)
    assert caught.value.rcvd.code == 1007


@pytest.mark.parametrize(
    ("call", "code", "identifier"),
    [
        ({"jsonrpc": "2.0", "method": "tools/list", "id": 3}, -32603, 3),
        ({"jsonrpc": "2.0", "method": "tools/list", "id": "a", "params": {}}, -32603, "a"),
        ({}, -32600, None),
        ({"jsonrpc": "1.0", "method": "x", "id": 4}, -32600, 4),
        ({"jsonrpc": "2.0", "method": 5}, -32600, None),
        ({"jsonrpc": "2.0", "method": "openenv/session/create", "id": 5}, -32603, 5),
        ({"jsonrpc": "2.0", "method": "resources/list", "id": 6}, -32601, 6),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": [], "id": 7}, -32602, 7),
    ],
)
def test_mcp_messages_are_answered(wire, call, code, identifier):
    answer = wire.ask({"type": "mcp", "data": call})
    assert answer["type"] == "mcp"
    assert answer["data"]["jsonrpc"] == "2.0"
    assert answer["data"]["id"] == identifier
    assert answer["data"]["error"]["code"] == code


# Order and concurrency


def test_pipelined_requests_are_answered_once_in_order(wire):
    messages = []
    for number in range(20):
        match number % 5:
            case 0:
                messages.append(({"type": "reset", "data": {"episode_id": str(number)}}, "observation"))
            case 1:
                messages.append(
                    ({"type": "step", "data": {"code": f"import time; time.sleep(0.03); print({number})"}}, "observation")
                )
            case 2:
                messages.append(({"type": "state"}, "state"))
            case 3:
                messages.append(({"type": "nope", "n": number}, "error"))
            case 4:
                messages.append(({"type": "mcp", "data": {"id": number}}, "mcp"))
    for message, _ in messages:
        wire.send(message)
    for number, (_, kind) in enumerate(messages):
        answer = wire.receive()
        assert answer["type"] == kind
        if number % 5 == 1:
            assert answer["data"]["observation"]["stdout"] == f"{number}\n"
        elif number % 5 == 2:
            assert answer["data"]["episode_id"] == str(number - 2)
            assert answer["data"]["step_count"] == 1
        elif number % 5 == 4:
            assert answer["data"]["id"] == number
    assert wire.is_silent()


def test_requests_beyond_read_ahead_limit_are_answered(wire):
    wire.reset()
    wire.send({"type": "step", "data": {"code": SLEEP.format(0.5)}})
    for number in range(150):
        wire.send({"type": "step", "data": {"code": str(number)}})
    wire.receive()
    assert [wire.receive()["data"]["observation"]["stdout"] for _ in range(150)] == [f"{number}\n" for number in range(150)]


def test_json_and_msgpack_share_connection(server):
    with Wire(server.ws_url) as wire:
        for encoding in ("json", "msgpack", "json"):
            wire.encoding = encoding
            wire.stdout("x = globals().get('x', 0) + 1")
        assert wire.stdout("x") == "3\n"


def test_fragmented_message_is_answered(server):
    with connect(server.ws_url, compression=None) as client:
        client.send(["{", '"type"', ": ", '"state"}'])
        assert json.loads(client.recv(timeout=30))["type"] == "state"


def test_pings_are_answered_during_step(json_wire):
    json_wire.reset()
    json_wire.send({"type": "step", "data": {"code": SLEEP.format(60)}})
    for _ in range(5):
        assert json_wire.socket.ping().wait(_ANSWER_WITHIN)
    json_wire.send({"type": "interrupt"})
    assert json_wire.receive()["type"] == "observation"


def test_busy_step_does_not_delay_other_sessions(server, http):
    with Wire(server.ws_url) as busy, Wire(server.ws_url) as other:
        other.reset()
        busy.reset()
        busy.send({"type": "step", "data": {"code": "print('x' * 10_000_000)\nsum(range(10**9))", "timeout_s": 60}})
        assert other.stdout("1") == "1\n"
        assert http.get("/health").status_code == 200
        busy.send({"type": "interrupt"})
        assert busy.receive()["data"]["observation"]["exit_code"] != 0


# Text and message sizes


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (r"print('a\ud800b')", "a\ufffdb\n"),
        (r"print('a\0b')", "a\ufffdb\n"),
        (r"import os; os.write(1, b'\xff\xfe\n') and None", "\ufffd\ufffd\n"),
        (r"import os; os.write(1, b'\xed\xa0\x80\n') and None", "\ufffd\n"),
        (r"print('\U0001f389\u202e\x1b[0m\r')", "\U0001f389\u202e\x1b[0m\r\n"),
        (r"import os; os.write(1, b'\xf0\x9f') and None; os.write(1, b'\x8e\x89') and None", "\U0001f389"),
    ],
)
def test_undecodable_output_becomes_valid_text(wire, code, shown):
    wire.reset()
    assert wire.stdout(code) == shown


def test_lone_surrogate_in_exception_is_survived(wire):
    wire.reset()
    observation = wire.step(r"raise ValueError('\ud800')")["observation"]
    assert observation["exit_code"] == 1
    assert "ValueError" in observation["stderr"]


def test_megabyte_of_code_runs(wire):
    wire.reset()
    assert wire.stdout(f"x = '{'é' * 500_000}'; len(x)") == "500000\n"


def test_megabytes_of_output_are_truncated(wire):
    wire.reset()
    stdout = wire.stdout("print('x' * 20_000_000)")
    assert len(stdout) <= 16_384
    assert "characters cut" in stdout


def test_requested_output_limit_applies(wire):
    wire.reset(max_output_chars=2_000_000)
    assert wire.stdout("print('é' * 1_500_000)") == "é" * 1_500_000 + "\n"


def closing_code(client, data):
    """Send data that makes the server close the connection; return the code, None if sending failed before it was read."""
    try:
        client.send(data)
        client.recv(timeout=30)
    except ConnectionClosed as closed:
        return closed.rcvd and closed.rcvd.code
    return "not closed"


@pytest.mark.parametrize("size", [16 * 1024 * 1024 + 1, 40_000_000])
def test_oversized_frame_closes_only_its_connection(server, size):
    with Wire(server.ws_url) as other:
        other.stdout("x = 1")
        with Wire(server.ws_url) as wire:
            wire.reset()
            assert closing_code(wire.socket, "x" * size) in (1009, None)
        assert other.stdout("x") == "1\n"


def test_oversized_fragmented_message_closes_connection(server):
    with connect(server.ws_url, compression=None, close_timeout=1) as client:
        assert closing_code(client, ["x" * 1_000_000] * 17) in (1009, None)


# Session slots


def has_place(server):
    with Wire(server.ws_url) as wire, contextlib.suppress(ConnectionClosedOK):
        return wire.ask({"type": "reset"})["type"] == "observation"
    return False


def test_connection_at_capacity_gets_error_and_closes(small_server):
    with Wire(small_server.ws_url) as first:
        first.reset()
        for _ in range(5):
            with connect(small_server.ws_url, compression=None) as second:
                error = json.loads(second.recv(timeout=30))
                assert error["type"] == "error"
                assert error["data"]["code"] == "CAPACITY_REACHED"
                assert (error["data"]["active_sessions"], error["data"]["max_sessions"]) == (1, 1)
                with pytest.raises(ConnectionClosedOK) as caught:
                    second.recv(timeout=30)
                assert caught.value.rcvd.code == 1000
        assert first.stdout("1") == "1\n"


@pytest.mark.parametrize("leave", ["close message", "close frame", "drop"])
@pytest.mark.parametrize("busy", ["idle", "in a step", "in a step, with requests ahead", "in a reset"])
def test_disconnect_frees_session_at_once(small_server, leave, busy):
    with Wire(small_server.ws_url) as wire:
        wire.reset()
        before = {process.pid for process in small_server.family()}
        if busy.startswith("in a step"):
            wire.stdout("import subprocess; p = subprocess.Popen(['sleep', '300'], start_new_session=True)")
            wire.send({"type": "step", "data": {"code": SLEEP.format(60)}})
            time.sleep(0.1)
        if "ahead" in busy:
            for _ in range(3):
                wire.send({"type": "step", "data": {"code": SLEEP.format(60)}})
        if busy == "in a reset":
            wire.send({"type": "reset"})
        if leave == "close message" and busy == "idle":
            wire.send({"type": "close"})
        elif leave == "drop":
            wire.socket.socket.shutdown(socket.SHUT_RDWR)
        else:
            threading.Thread(target=wire.socket.close, daemon=True).start()
        assert eventually(lambda: has_place(small_server))
    new = [process for process in small_server.family() if process.pid not in before and is_sleep(process)]
    assert gone_within(new) == []


def is_sleep(process):
    try:
        return "sleep" in process.name()
    except psutil.NoSuchProcess:
        return False


def test_disconnect_with_queued_requests_frees_session(tmp_path):
    with RunningServer(tmp_path, "--max-sessions", "1") as server, Wire(server.ws_url) as wire:
        wire.reset()
        wire.send({"type": "step", "data": {"code": SLEEP.format(60)}})
        for _ in range(100):
            wire.send({"type": "state"})
        time.sleep(0.2)
        wire.socket.socket.shutdown(socket.SHUT_RDWR)
        assert eventually(lambda: has_place(server))


def test_many_short_sessions_leave_no_processes(server):
    before = len(server.family())
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(server.ws_url, "msgpack")) for _ in range(12)]
            for wire in wires:
                wire.send({"type": "step", "data": {"code": "1"}})
            for wire in wires:
                wire.receive()
    assert eventually(lambda: len(server.family()) <= before + 2)


def test_every_session_starts_with_fresh_workspace(small_server):
    # Many resets in quick succession over many connections: executors are recycled while others are requested.
    look = "import os; print('mark' in globals(), os.listdir()); mark = open('left', 'w').close()"
    for _ in range(25):
        with Wire(small_server.ws_url, "msgpack") as wire:
            for _ in range(4):
                wire.reset(seed=1)
                data = wire.step(look)
                assert (data["observation"]["stdout"], data["observation"]["stderr"]) == ("False []\n", "")
                assert (data["metadata"]["outcome"], data["metadata"]["state_lost"]) == ("ok", False)


# Arbitrary input

_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)
_msgpack_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=20)),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(0, 9), children, max_size=4)
    ),
    max_leaves=12,
)


def _messages(values):
    kinds = st.sampled_from(["reset", "step", "state", "mcp", "reset", "step"]) | values
    keys = st.sampled_from(
        ["code", "seed", "episode_id", "timeout_s", "metadata", "max_output_chars", "step_timeout", "show_value"]
    )
    data = st.dictionaries(keys, values, max_size=4) | values
    return st.fixed_dictionaries({"type": kinds}, optional={"data": data}) | values


_fuzz = settings(max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def fuzzed(server):
    """Client that sends frames over one connection, and opens another when the server closes it."""

    class Fuzzed:
        wire = None

        def _forget(self):
            self.wire.close()
            self.wire = None

        def send(self, frame):
            if self.wire is None:
                self.wire = Wire(server.ws_url)
            self.wire.socket.send(frame)
            try:
                answer = self.wire.socket.recv(timeout=30)
            except ConnectionClosedOK:
                self._forget()
                return
            assert isinstance(answer, type(frame))
            document = json.loads(answer) if isinstance(answer, str) else msgspec.msgpack.decode(answer)
            assert document["type"] in ("observation", "state", "mcp", "error")
            assert server.is_alive()
            if document["type"] == "error" and document["data"]["code"] == "SESSION_ERROR":
                with pytest.raises(ConnectionClosedOK):
                    self.wire.socket.recv(timeout=30)
                self._forget()

    fuzzed = Fuzzed()
    yield fuzzed
    if fuzzed.wire is not None:
        fuzzed.wire.close()


@_fuzz
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_break_server(fuzzed, data):
    fuzzed.send(data)


@_fuzz
@given(st.text(max_size=200))
def test_arbitrary_text_never_breaks_server(fuzzed, text):
    fuzzed.send(text)


@_fuzz
@given(_messages(_json_values))
def test_arbitrary_json_never_breaks_server(fuzzed, document):
    fuzzed.send(json.dumps(document))


@_fuzz
@given(_messages(_msgpack_values))
def test_arbitrary_msgpack_never_breaks_server(fuzzed, document):
    fuzzed.send(msgspec.msgpack.encode(document))


@_fuzz
@given(path=st.sampled_from(["/reset", "/step", "/mcp"]), body=st.binary(max_size=300))
def test_arbitrary_body_never_breaks_server(http, path, body):
    response = http.post(path, content=body)
    assert response.status_code in (200, 422)
    response.json()


@_fuzz
@given(_messages(_json_values))
def test_arbitrary_json_body_never_breaks_server(http, document):
    for path in ("/reset", "/step", "/mcp"):
        body = document.get("data") if isinstance(document, dict) else document
        response = http.post(path, content=json.dumps(body))
        assert response.status_code in (200, 422)


# HTTP


def test_health_reports_healthy(http):
    response = http.get("/health")
    assert response.status_code == 200
    assert response.json()["status"] == "healthy"
    assert response.headers["content-type"] == "application/json"


def test_health_reports_sessions(http):
    report = http.get("/health").json()
    assert 0 <= report["active_sessions"] < report["max_sessions"]


def test_health_reports_isolation(http):
    isolation = http.get("/health").json()["isolation"]
    kernel = probe()
    assert isolation["landlock_abi"] == kernel.landlock_abi
    assert isolation["seccomp"] is kernel.seccomp
    assert isolation["policy"] in ("require", "prefer")
    assert isolation["no_new_privileges"] in (True, False)


def test_metadata_has_required_fields(http):
    metadata = http.get("/metadata").json()
    assert {"name", "description", "readme_content", "version", "author", "documentation_url"} <= set(metadata)
    assert isinstance(metadata["name"], str)
    assert isinstance(metadata["description"], str)


def test_schema_describes_actions_and_observations(http):
    schemas = http.get("/schema").json()
    assert {"action", "observation", "state", "reset_observation"} <= set(schemas)
    assert schemas["action"]["type"] == "object"
    assert schemas["action"]["required"] == ["code"]
    assert schemas["action"]["properties"]["code"]["type"] == "string"
    assert schemas["action"]["additionalProperties"] is False
    assert set(schemas["observation"]["properties"]) == {
        "stdout",
        "stderr",
        "exit_code",
        "metadata",
        "screenshot",
        "frames",
        "widgets",
    }
    assert "http" not in json.dumps(schemas)


def test_observations_validate_against_schema(http, json_wire):
    schemas = http.get("/schema").json()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"code": "1", "metadata": {}}, schemas["action"])
    jsonschema.validate(json_wire.reset()["observation"], schemas["reset_observation"])
    jsonschema.validate(json_wire.step("1/0")["observation"], schemas["observation"])
    jsonschema.validate(json_wire.state(), schemas["state"])


def test_schema_references_resolve(http):
    def references(node):
        if isinstance(node, dict):
            yield from [node["$ref"]] if "$ref" in node else []
            for child in node.values():
                yield from references(child)
        elif isinstance(node, list):
            for child in node:
                yield from references(child)

    def resolve(document, reference):
        assert reference.startswith("#/")
        for part in reference[2:].split("/"):
            document = document[part]

    documents = [*http.get("/schema").json().values(), http.get("/openapi.json").json()]
    assert any(list(references(document)) for document in documents)
    for document in documents:
        for reference in references(document):
            resolve(document, reference)


def test_openapi_lists_working_routes(http):
    document = http.get("/openapi.json").json()
    assert document["info"]["version"] == "1.0.0"
    assert {"/health", "/metadata", "/schema", "/state", "/reset", "/step", "/mcp"} <= set(document["paths"])
    bodies = {"/step": {"action": {"code": "1"}}}
    for path, operations in document["paths"].items():
        for method in operations:
            body = bodies.get(path, {})
            response = http.request(method, path, **({"json": body} if method == "post" else {}))
            assert response.status_code == 200, path


@pytest.mark.parametrize("body", [b"", b"{}", b'{"seed": 3}', b'{"seed": 3, "episode_id": "a", "extra": [1]}'])
def test_http_reset_returns_observation(http, body):
    response = http.post("/reset", content=body)
    assert response.status_code == 200
    check_observation(response.json())


def test_http_step_returns_observation(http):
    response = http.post("/step", json={"action": {"code": "print(6 * 7)"}, "request_id": "r", "extra": 1})
    assert response.status_code == 200
    check_observation(response.json())
    assert response.json()["observation"]["stdout"] == "42\n"


def test_http_steps_share_no_state(http):
    http.post("/step", json={"action": {"code": "x = 41; open('f', 'w').close()"}})
    observation = http.post("/step", json={"action": {"code": "import os; print('x' in globals(), os.listdir())"}}).json()
    assert observation["observation"]["stdout"] == "False []\n"


def test_http_step_timeout_applies(http):
    with promptly():
        observation = http.post("/step", json={"action": {"code": SLEEP.format(60)}, "timeout_s": 0.3}).json()["observation"]
    assert observation["exit_code"] == 124


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/step", b""),
        ("/step", b'{"action": {"code": "1"}, "request_id": "%s"}' % (b"x" * 256)),
        ("/step", b"{}"),
        ("/step", b"{"),
        ("/step", b"[]"),
        ("/step", b"\xff"),
        ("/step", b'{"action": {}}'),
        ("/step", b'{"action": {"code": 1}}'),
        ("/step", b'{"action": {"code": "1", "extra": 1}}'),
        ("/step", b'{"action": {"code": "1"}, "timeout_s": 0}'),
        ("/step", b'{"action": {"code": "1"}, "timeout_s": "soon"}'),
        ("/step", b'{"code": "1"}'),
        ("/step", b"[" * 100_000),
        ("/reset", b'{"seed": -1}'),
        ("/reset", b'{"seed": "1"}'),
        ("/reset", b"null"),
        ("/reset", b'{"episode_id": "' + b"x" * 256 + b'"}'),
        ("/reset", b"{"),
    ],
)
def test_invalid_body_is_refused(http, path, body):
    response = http.post(path, content=body)
    assert response.status_code == 422
    (fault, *_) = response.json()["detail"]
    assert {"type", "loc", "msg"} <= set(fault)


@pytest.mark.parametrize("body", [b'{"seed": 18446744073709551616}', b'{"seed": 1e400}', b'{"step_timeout": 1e308}'])
def test_out_of_range_numbers_never_break_server(http, body):
    assert http.post("/reset", content=body).status_code in (200, 422)


def test_http_state_is_initial_state(http):
    assert http.get("/state").json() == {"episode_id": None, "step_count": 0, "last_exit_code": 0}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}", -32600),
        (b"[]", -32600),
        (b"5", -32600),
        (b"", -32700),
        (b"nope", -32700),
        (b'"\xff"', -32700),
        (b"[" * 100_000, -32700),
    ],
)
def test_mcp_without_request_returns_json_rpc_error(server, http, body, code):
    response = http.post("/mcp", content=body)
    assert response.status_code == 200
    assert response.json()["jsonrpc"] == "2.0"
    assert response.json()["error"]["code"] == code
    with connect(f"ws://127.0.0.1:{server.port}/mcp") as client:
        client.send(body)
        assert json.loads(client.recv(timeout=_ANSWER_WITHIN)) == response.json()


def test_mcp_over_http_is_answered(http):
    response = http.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
    assert response.status_code == 200
    assert response.json()["id"] == 7
    assert response.json()["error"]["code"] == -32603


def test_unknown_session_id_is_refused(server):
    with connect(f"{server.ws_url}?session_id=5") as client:
        error = json.loads(client.recv(timeout=_ANSWER_WITHIN))
        assert error == {"type": "error", "data": {"message": "Unknown session_id: 5", "code": "SESSION_ERROR"}}
        with pytest.raises(ConnectionClosedOK):
            client.recv(timeout=30)
    with Wire(f"{server.ws_url}?client=a&session_id=") as wire:
        assert wire.stdout("1") == "1\n"


def test_mcp_over_separate_websocket_is_answered(server):
    with connect(f"ws://127.0.0.1:{server.port}/mcp") as client:
        for number in range(3):
            client.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list"}))
            answer = json.loads(client.recv(timeout=_ANSWER_WITHIN))
            assert (answer["id"], answer["error"]["code"]) == (number, -32603)


def test_task_routes_are_not_supported(http):
    name = http.get("/metadata").json()["name"]
    assert http.get("/list_environments").json() == [name]
    assert http.get(f"/{name}/splits").status_code == 501
    assert http.get("/another/splits").status_code == 404
    for path, method in [("tasks", "list_tasks"), ("num_tasks",) * 2, ("task", "get_task"), ("task_range", "get_task_range")]:
        response = http.post(f"/{name}/{path}", json={"split": "train", "index": 0})
        assert response.status_code == 501
        assert response.json() == {"detail": f"{method} is not supported for this environment"}
        assert http.post(f"/another/{path}", json={"split": "train"}).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/", 405),
        ("GET", "/step", 405),
        ("GET", "/reset", 405),
        ("POST", "/health", 405),
        ("GET", "/mcp", 405),
        ("DELETE", "/state", 405),
    ],
)
def test_unknown_routes_and_methods_are_refused(http, method, path, status):
    assert http.request(method, path).status_code == status


@pytest.mark.parametrize("path", ["/", "/nope", "/ws/", "/health"])
def test_websocket_on_other_paths_is_refused(server, path):
    with pytest.raises(InvalidStatus) as caught, connect(f"ws://127.0.0.1:{server.port}{path}"):
        pass
    assert caught.value.response.status_code in (403, 404)


def test_http_step_at_capacity_returns_503(small_server):
    with Wire(small_server.ws_url) as wire:
        wire.reset()
        response = httpx.post(f"{small_server.url}/step", json={"action": {"code": "1"}})
        assert response.status_code == 503
        assert response.json()["detail"]["code"] == "CAPACITY_REACHED"
        assert (response.json()["detail"]["active_sessions"], response.json()["detail"]["max_sessions"]) == (1, 1)
        assert httpx.get(f"{small_server.url}/health").status_code == 200


def test_http_disconnect_during_step_frees_session(small_server):
    body = json.dumps({"action": {"code": SLEEP.format(60)}}).encode()
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", small_server.port)) as client:
            client.sendall(b"POST /step HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            time.sleep(0.3)
        assert eventually(lambda: has_place(small_server))


def test_http_disconnect_while_sending_frees_session(small_server):
    with socket.create_connection(("127.0.0.1", small_server.port)) as client:
        client.sendall(b"POST /step HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert eventually(lambda: has_place(small_server))
    assert "Traceback" not in small_server.log.read_text()


def test_oversized_body_is_refused_with_bounded_memory(server, http):
    # Bodies up to the maximum size of frames are accepted; larger ones are refused, like larger frames.
    before = psutil.Process(server.process.pid).memory_info().rss
    try:
        response = http.post("/step", content=b"[" + b"1," * 50_000_000 + b"1]")
    except httpx.TransportError:
        pass
    else:
        assert response.status_code in (413, 422)
    assert psutil.Process(server.process.pid).memory_info().rss - before < 80_000_000


# Tokens


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("closed"), token="right token") as server:
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "right token"},
        {"Authorization": b"Bearer \xff"},
        {"Authorization": ""},
    ],
)
def test_only_health_is_open_without_token(closed_server, headers):
    with httpx.Client(base_url=closed_server.url, headers=headers) as client:
        assert client.get("/health").status_code == 200
        for path in ("/metadata", "/schema", "/openapi.json", "/state", "/nope", "/ws"):
            assert client.get(path).status_code == 401
        for path in ("/step", "/reset", "/mcp"):
            assert client.post(path, json={}).status_code == 401
    if not isinstance(headers.get("Authorization"), bytes):
        with pytest.raises(InvalidStatus), connect(closed_server.ws_url, additional_headers=headers):
            pass


def test_token_opens_all_routes(closed_server):
    headers = {"Authorization": "Bearer right token"}
    with httpx.Client(base_url=closed_server.url, headers=headers) as client:
        assert client.get("/schema").status_code == 200
        assert client.post("/step", json={"action": {"code": "1"}}).json()["observation"]["stdout"] == "1\n"
    with Wire(closed_server.ws_url, additional_headers=headers) as wire:
        assert wire.stdout("1") == "1\n"


def test_user_code_cannot_find_token(closed_server):
    code = f"""
        import glob, os
        pid = {closed_server.process.pid}
        found = []
        paths = [f"/proc/{{pid}}/environ", "/proc/self/environ", f"/proc/{{os.getppid()}}/environ"]
        for path in paths + glob.glob("/proc/*/cmdline"):
            try:
                found.append(b"right token" in open(path, "rb").read())
            except OSError:
                found.append(False)
        print(any(found), "CODING_GYM_TOKEN" in os.environ)
    """
    with Wire(closed_server.ws_url, additional_headers={"Authorization": "Bearer right token"}) as wire:
        assert wire.stdout(textwrap.dedent(code)) == "False False\n"


def test_token_file_is_read_and_removed(tmp_path):
    path = tmp_path / "token"
    path.write_text("from file\n")
    with RunningServer(tmp_path, "--token-file", str(path)) as server:
        assert not path.exists()
        assert httpx.get(f"{server.url}/state").status_code == 401
        assert httpx.get(f"{server.url}/state", headers={"Authorization": "Bearer from file"}).status_code == 200


# Shutdown


def test_signal_ends_server_and_all_children(tmp_path):
    def check(number):
        directory = tmp_path / number.name
        directory.mkdir()
        server = RunningServer(directory)
        try:
            with contextlib.ExitStack() as stack:
                wires = [stack.enter_context(Wire(server.ws_url)) for _ in range(3)]
                for wire in wires:
                    wire.stdout("import subprocess; p = subprocess.Popen(['sleep', '300'], start_new_session=True)")
                wires[0].send({"type": "step", "data": {"code": SLEEP.format(30)}})
                wires[1].send({"type": "step", "data": {"code": "import signal; signal.signal(2, 1)\nwhile True: pass"}})
                time.sleep(0.3)
                family = server.family()
                assert len(family) > 8
                server.process.send_signal(number)
                server.process.wait(20)
                assert gone_within(family) == []
        finally:
            if server.is_alive():
                server.process.kill()
            server.process.wait()

    check_side_by_side(check, [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])


def test_occupied_port_is_an_error(server, tmp_path):
    command = [sys.executable, "-m", "coding_gym_server", "--host", "127.0.0.1", "--port", str(server.port)]
    process = subprocess.run(
        [*command, "--workspaces", str(tmp_path / "ws"), "--preload", ""], capture_output=True, text=True, timeout=20
    )
    assert process.returncode != 0
    assert "in use" in process.stderr


def test_workspaces_are_removed_with_sessions(tmp_path):
    with RunningServer(tmp_path, "--spare-workers", "1") as server:
        workspaces = tmp_path / f"ws-{server.port}"
        with Wire(server.ws_url) as wire:
            wire.reset()
            wire.stdout("import os; os.makedirs('a/b'); open('a/b/f', 'w').close(); os.chmod('a', 0)")
        assert eventually(lambda: len(list(workspaces.glob("*/work"))) <= 1)
        assert eventually(lambda: not list(workspaces.glob("*/work/a")))
