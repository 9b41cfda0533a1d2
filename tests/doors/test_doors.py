"""Doors: ports of a session that lead to the trainer's side."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import socket
import threading
from base64 import b64encode
from contextlib import ExitStack

import gymnasium as gym
import psutil
import pytest

from coding_gym import AsyncCodingEnv, CodingEnv
from coding_gym.doors import DoorResponse, ServerTarget
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.pool import SandboxPool
from coding_gym_server.protocol.doors import MAX_DOOR_CONNECTIONS, MAX_DOORS, WINDOW_BYTES
from tests.doors.conftest import FETCH
from tests.doors.servers import tcp_server
from tests.support.environments import OPTIONS, make_envs, stdout
from tests.support.timing import eventually

every_provider = pytest.mark.every_provider


def echo_back(connection):
    while data := connection.recv(65536):
        connection.sendall(data)


@every_provider
def test_leads_to_server(make, echo):
    env = make(doors={8000: f"http://{echo.address}", 8001: f"http://{echo.address}/v1/"})
    assert stdout(env, "print(fetch('http://127.0.0.1:8000/a?b=c%20d', b'body'))") == (
        f"echo|POST /a?b=c%20d HTTP/1.1|{echo.address}|4|\n"
    )
    assert stdout(env, "print(fetch('http://localhost:8001/models'))").startswith("echo|GET /v1/models HTTP/1.1|")
    (exchange,) = env.doors[8000].log
    assert (exchange.step, exchange.method, exchange.path, exchange.status) == (2, "POST", "/a?b=c%20d", 200)
    assert (exchange.request_body, exchange.response_body[:4], exchange.is_complete) == (b"body", b"echo", True)
    assert exchange.request_headers["host"] == "127.0.0.1:8000"
    assert exchange.response_headers["content-length"] == str(len(exchange.response_body))
    assert exchange.seconds > 0
    assert [entry.path for entry in env.doors[8001].log.of_step(3)] == ["/models"]
    assert env.doors[8001].log.of_step(2) == []


@every_provider
def test_leads_to_function(make):
    seen = []

    def answer(request):
        seen.append(request)
        return {"step": request.step, "got": request.json()}

    env = make(doors={3141: answer})
    assert stdout(env, "print(fetch('http://127.0.0.1:3141/x', b'[1]', Key='v'))") == '{"step": 2, "got": [1]}\n'
    assert (seen[0].port, seen[0].method, seen[0].path, seen[0].headers["key"]) == (3141, "POST", "/x", "v")
    assert env.doors[3141].log[0].response_json() == {"step": 2, "got": [1]}


@every_provider
def test_passes_raw_tcp_in_both_directions_until_both_have_ended(make):
    def answer_at_end(connection):
        received = b""
        while data := connection.recv(65536):
            received += data
        connection.sendall(received[::-1])

    with tcp_server(answer_at_end) as port:
        env = make(doors={9000: f"tcp://127.0.0.1:{port}"})
        assert stdout(env, r"print(raw(9000, b'\x00\xffabc', end=True))") == "b'cba\\xff\\x00'\n"
        assert env.doors[9000].connections == 1


@every_provider
def test_nothing_else_is_reachable(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    code = f"""
for port in ({echo.server_port}, 8001, 22):
    try:
        socket.create_connection(('127.0.0.1', port), 5)
    except ConnectionRefusedError:
        print('refused')
try:
    socket.create_connection(('192.0.2.1', 80), 5)
except OSError as error:
    print('unreachable')
"""
    assert stdout(env, code) == "refused\n" * 3 + "unreachable\n"
    assert echo.requests == []


@every_provider
def test_sessions_of_a_sandbox_have_their_own_doors(make):
    first, second = make(doors={3141: lambda _: "first"}), make(doors={3141: lambda _: "second", 3142: lambda _: "other"})
    third = make()
    assert stdout(first, "print(fetch('http://127.0.0.1:3141'))") == "first\n"
    assert stdout(second, "print(fetch('http://127.0.0.1:3141'))") == "second\n"
    for env, port in ((first, 3142), (third, 3141)):
        obs, *_ = env.step(f"fetch('http://127.0.0.1:{port}')")
        assert "Connection refused" in obs["stderr"]


def test_streams_events_as_they_come(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    code = """
response = urllib.request.urlopen('http://127.0.0.1:8000/events', timeout=60)
print(response.readline())
"""
    assert stdout(env, code) == "b'data: {\"n\": 1}\\n'\n"
    assert not env.doors[8000].log[0].is_complete
    assert env.doors[8000].log[0].response_events() == [{"n": 1}]
    echo.go_on.set()
    assert "[DONE]" in stdout(env, "print(response.read())")
    (exchange,) = env.doors[8000].log
    assert exchange.is_complete
    assert exchange.response_events() == [{"n": 1}, {"n": 2}]


def test_function_may_stream(make):
    go_on = threading.Event()

    def answer(_):
        yield "data: 1\n\n"
        go_on.wait(60)
        yield b"data: 2\n\n"

    async def answer_later(_):
        await asyncio.sleep(0)
        return DoorResponse("late", status=201, headers={"X-Kind": "teapot"})

    env = make(doors={3141: answer, 3142: answer_later})
    assert (
        stdout(env, "r = urllib.request.urlopen('http://127.0.0.1:3141', timeout=60); print(r.readline())") == "b'data: 1\\n'\n"
    )
    go_on.set()
    assert stdout(env, "print(r.read(), r.headers['content-type'])") == "b'\\ndata: 2\\n\\n' text/event-stream\n"
    code = "r = urllib.request.urlopen('http://127.0.0.1:3142'); print(r.status, r.headers['x-kind'], r.read())"
    assert stdout(env, code) == "201 teapot b'late'\n"


def test_passes_websocket(make):
    def speak(connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: ")).split()[1]
        accept = b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x02hi"
        )
        echo_back(connection)

    with tcp_server(speak) as port:
        env = make(doors={8000: f"http://127.0.0.1:{port}"})
        code = r"""
c = socket.create_connection(('127.0.0.1', 8000), 60)
c.sendall(b'GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
          b'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n')
got = b''
while not got.endswith(b'hi'):
    got += c.recv(65536)
c.sendall(b'ping')
print(got.split(b' ')[1], b's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' in got, c.recv(100))
"""
        assert stdout(env, code) == "b'101' True b'ping'\n"
        assert env.doors[8000].log[0].status == 101


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /close HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"to the end"),
        (b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1"),
        (b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"content-length: "),
        (b"GET http://other.example/a HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n", b"GET /a HTTP/1.1"),
        (
            b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"|3|",
        ),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", b"|3|"),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"GET /b HTTP/1.1"),
        (b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", b"HTTP/1.1 405 "),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"HTTP/1.1 400 "),
    ],
    ids=["until-close", "http-1.0", "head", "absolute", "chunked", "expect", "pipelined", "connect", "none", "lengths"],
)
def test_request_forms(make, echo, request_bytes, expected):
    env = make(doors={8000: f"http://{echo.address}"})
    assert expected.decode() in stdout(env, f"print(raw(8000, {request_bytes!r}).decode())")


def test_endless_head_is_refused(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    assert stdout(env, "print(raw(8000, b'GET /' + b'a' * 200_000)[:12])") == "b'HTTP/1.1 431'\n"


def test_response_before_end_of_request(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    code = "print(raw(8000, b'POST /early HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 9\\r\\n\\r\\nabc').split(b'\\r\\n')[0])"
    assert "413" in stdout(env, code)
    # The next connection is not affected.
    assert stdout(env, "print(fetch('http://127.0.0.1:8000/x'))").startswith("echo|GET /x")


def test_keeps_connections_to_server(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    code = """
import http.client
c = http.client.HTTPConnection('127.0.0.1', 8000, timeout=60)
for _ in range(5):
    c.request('GET', '/'); c.getresponse().read()
"""
    assert stdout(env, code) == ""
    assert (len(echo.requests), echo.connections, env.doors[8000].connections) == (5, 1, 1)


def test_server_that_is_gone(make):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    env = make(doors={8000: f"http://127.0.0.1:{port}", 9000: f"tcp://127.0.0.1:{port}"})
    assert stdout(env, "print(fetch('http://127.0.0.1:8000/x'))").startswith("502 The server behind this door failed")
    exchange = env.doors[8000].log[-1]
    assert (exchange.status, exchange.is_complete) == (None, False)
    assert "failed" in exchange.error
    assert stdout(env, "\ntry:\n    print(raw(9000, b'x'))\nexcept ConnectionResetError:\n    print(b'')") == "b''\n"


def test_server_that_breaks_off(make):
    def break_off(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    with tcp_server(break_off) as port:
        env = make(doors={8000: f"http://127.0.0.1:{port}"})
        obs, *_ = env.step("fetch('http://127.0.0.1:8000')")
        assert "IncompleteRead" in obs["stderr"] or "Connection reset" in obs["stderr"]
        exchange = env.doors[8000].log[-1]
        assert (exchange.status, exchange.response_body, exchange.is_complete) == (200, b"abc", False)


def test_server_learns_that_a_program_is_gone(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    code = """
import subprocess, sys
p = subprocess.Popen([sys.executable, '-c', "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/hang')"])
"""
    assert stdout(env, code) == ""
    assert eventually(lambda: echo.requests)
    assert stdout(env, "p.kill(); p.wait(); None") == ""
    assert echo.was_left.wait(60)
    assert eventually(lambda: env.doors[8000].log[-1].error)


def test_function_that_fails_reveals_nothing(make, caplog):
    def answer(request):
        if request.path == "/late":
            return (1 / 0 for _ in "x")
        raise ValueError("secret of the trainer")

    env = make(doors={3141: answer})
    assert stdout(env, "print(fetch('http://127.0.0.1:3141'))") == "500 The function behind this door failed.\n\n"
    assert env.doors[3141].log[-1].error == "ValueError: secret of the trainer"
    assert "secret of the trainer" in caplog.text
    obs, *_ = env.step("fetch('http://127.0.0.1:3141/late')")
    assert obs["exit_code"] == 1
    assert "ZeroDivisionError" not in obs["stderr"]


def test_keys_stay_on_this_side(make, echo):
    target = ServerTarget(f"http://{echo.address}", headers={"Authorization": "Bearer real"})
    env = make(doors={8000: target})
    assert stdout(env, "print(fetch('http://127.0.0.1:8000', Authorization='Bearer fake'))").endswith("|Bearer real\n")
    assert env.doors[8000].log[0].request_headers["authorization"] == "Bearer fake"
    assert "real" not in repr(target)


def test_log_begins_with_the_episode(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    env.step("fetch('http://127.0.0.1:8000')")
    assert (len(env.doors[8000].log), env.doors[8000].connections) == (1, 1)
    env.reset(seed=2)
    assert (len(env.doors[8000].log), env.doors[8000].connections) == (0, 0)
    env.step(FETCH + "fetch('http://127.0.0.1:8000/again')")
    assert [exchange.step for exchange in env.doors[8000].log] == [1]


def test_log_is_bounded(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    assert "|6000000|" in stdout(env, "print(fetch('http://127.0.0.1:8000', bytes(6_000_000)))")
    exchange = env.doors[8000].log[-1]
    assert (len(exchange.request_body), exchange.is_truncated) == (4 << 20, True)


@every_provider
def test_flood_that_nobody_reads_is_bounded(make):
    """Neither side buffers more than the windows of the connections."""
    received = []
    go_on = threading.Event()

    def read_later(connection):
        go_on.wait(60)
        while data := connection.recv(1 << 20):
            received.append(len(data))
        connection.sendall(b"end")

    with tcp_server(read_later) as port:
        env = make(doors={9000: f"tcp://127.0.0.1:{port}"})
        before = psutil.Process().memory_info().rss
        code = """
import time
c = socket.create_connection(('127.0.0.1', 9000), 60)
c.setblocking(False)
sent, still = 0, 0
while still < 20:
    try:
        sent += c.send(bytes(1 << 20)); still = 0
    except BlockingIOError:
        still += 1; time.sleep(0.05)
print(sent)
"""
        sent = int(stdout(env, code))
        assert sent < 40 * WINDOW_BYTES
        assert psutil.Process().memory_info().rss - before < 64 << 20
        go_on.set()
        code = "c.settimeout(60); c.sendall(bytes(1 << 24)); c.shutdown(socket.SHUT_WR); print(c.recv(10))"
        assert stdout(env, code) == "b'end'\n"
        assert sum(received) == sent + (1 << 24)


def test_program_that_does_not_read_holds_up_nobody_else(make):
    def pour(connection):
        try:
            while True:
                connection.sendall(bytes(1 << 20))
        except OSError:
            pass

    with tcp_server(pour) as port:
        env = make(doors={9000: f"tcp://127.0.0.1:{port}", 3141: lambda _: "fine"})
        code = """
held = [socket.create_connection(('127.0.0.1', 9000), 60) for _ in range(8)]
print(fetch('http://127.0.0.1:3141'))
print(all(len(c.recv(1 << 20)) for c in held))
"""
        assert stdout(env, code) == "fine\nTrue\n"


def test_more_connections_than_permitted_wait(make):
    with tcp_server(echo_back) as port:
        env = make(doors={9000: f"tcp://127.0.0.1:{port}"})
        code = f"""
held = [socket.create_connection(('127.0.0.1', 9000), 60) for _ in range({MAX_DOOR_CONNECTIONS + 10})]
for c in held:
    c.sendall(b'x')
print(sum(c.recv(1) == b'x' for c in held[:{MAX_DOOR_CONNECTIONS}]))
for c in held[:{MAX_DOOR_CONNECTIONS}]:
    c.close()
print(sum(c.recv(1) == b'x' for c in held[{MAX_DOOR_CONNECTIONS}:]))
"""
        assert stdout(env, code) == f"{MAX_DOOR_CONNECTIONS}\n10\n"
        assert env.doors[9000].connections == MAX_DOOR_CONNECTIONS + 10


@every_provider
def test_connections_end_with_the_episode(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    env.step("import threading; threading.Thread(target=fetch, args=('http://127.0.0.1:8000/hang',), daemon=True).start()")
    assert eventually(lambda: echo.requests)
    env.reset(seed=2)
    assert echo.was_left.wait(60)
    assert stdout(env, FETCH + "print(fetch('http://127.0.0.1:8000/x'))").startswith("echo|GET /x")


def test_door_opened_later(make):
    env = make()
    door = env.open_door(7000, lambda _: "late")
    assert stdout(env, "print(fetch('http://127.0.0.1:7000'))") == "late\n"
    assert len(door.log) == 1
    assert env.open_door(7000, lambda _: "changed").url == "http://127.0.0.1:7000"
    assert stdout(env, "print(fetch('http://127.0.0.1:7000'))") == "changed\n"
    env.reset(seed=2)
    assert stdout(env, FETCH + "print(fetch('http://127.0.0.1:7000'))") == "changed\n"


def test_port_in_use(make):
    env = make()
    env.step("s = socket.create_server(('127.0.0.1', 7000))")
    with pytest.raises(ConfigurationError, match=r"Door 7000 cannot be opened: .*Address already in use"):
        env.open_door(7000, lambda _: "late")
    assert len(env.doors) == 0
    assert stdout(env, "print(1)") == "1\n"


def test_low_port(make):
    env = make(doors={80: lambda _: "low"})
    assert stdout(env, "print(fetch('http://127.0.0.1'))") == "low\n"


@every_provider
def test_snapshots_and_forks_have_doors(make):
    env = make(doors={3141: lambda request: str(request.step)})
    env.open_door(3142, lambda _: "later")
    snapshot = env.clone_state()
    env.step("x = 1")
    env.restore_state(snapshot)
    assert stdout(env, "print(fetch('http://127.0.0.1:3141'), fetch('http://127.0.0.1:3142'))") == "2 later\n"
    children = env.fork(2)
    try:
        for child in children:
            assert stdout(child, "print(fetch('http://127.0.0.1:3141'), fetch('http://127.0.0.1:3142'))") == "3 later\n"
            assert len(child.doors[3141].log) == 1
        assert len(env.doors[3141].log) == 1
    finally:
        for child in children:
            child.close()


def test_shell_and_processes_have_doors(make, echo):
    env = make(doors={8000: f"http://{echo.address}"}, variables={"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"})
    assert stdout(env, "import os; print(fetch(os.environ['OPENAI_BASE_URL']))").startswith("echo|GET /v1 ")
    result = env.exec(["python3", "-c", FETCH + "import os; print(fetch(os.environ['OPENAI_BASE_URL'] + '/x'))"])
    assert result.stdout.startswith(b"echo|GET /v1/x ")
    with gym.make("CodingShellEnv-v0", provider="local", preload=(), variables={"NAME": "a b"}, screen=None) as shell:
        shell.reset(seed=1)
        assert shell.step("echo $NAME")[0]["stdout"] == "a b\n"


def test_replacement_of_a_killed_worker_has_variables(make):
    env = make(variables={"NAME": "kept"})
    env.step("import os; os.kill(os.getpid(), 9)")
    assert stdout(env, "import os; print(os.environ['NAME'])") == "kept\n"


def test_vector_environments_have_doors(doors_pool, echo):
    with ExitStack() as stack:
        envs = make_envs(stack, 4, pool=doors_pool, doors={8000: f"http://{echo.address}"}, **OPTIONS)
        envs.reset(seed=1)
        observations, *_ = envs.step([FETCH + f"print(fetch('http://127.0.0.1:8000/{index}'))" for index in range(4)])
        assert [text.split()[1] for text in observations["stdout"]] == ["/0", "/1", "/2", "/3"]
        assert [len(env.doors[8000].log) for env in envs.unwrapped.envs] == [1] * 4


def test_asynchronous_environment_has_doors():
    async def run():
        async with AsyncCodingEnv(provider="local", preload=(), doors={3141: lambda _: "async"}, **OPTIONS) as env:
            obs, *_ = await env.step(FETCH + "print(fetch('http://127.0.0.1:3141'))")
            assert obs["stdout"] == "async\n"
            assert len(env.doors[3141].log) == 1
            await env.open_door(3142, lambda _: "later")
            obs, *_ = await env.step("print(fetch('http://127.0.0.1:3142'))")
            assert obs["stdout"] == "later\n"

    asyncio.run(run())


def test_many_sessions_at_once(echo):
    with (
        SandboxPool(1, provider="local", preload=(), sessions=16) as pool,
        ExitStack() as stack,
    ):
        envs = make_envs(stack, 16, pool=pool, doors={8000: f"http://{echo.address}"}, **OPTIONS)
        envs.reset(seed=1)
        for _ in range(3):
            code = FETCH + "print({fetch('http://127.0.0.1:8000', bytes(100_000)).split('|')[3] for _ in range(5)})"
            observations, *_ = envs.step([code] * 16)
            assert set(observations["stdout"]) == {"{'100000'}\n"}


@every_provider
def test_killed_sessions_leave_nothing(make, echo):
    env = make(doors={8000: f"http://{echo.address}"})
    env.step("import threading; threading.Thread(target=fetch, args=('http://127.0.0.1:8000/hang',), daemon=True).start()")
    assert eventually(lambda: echo.requests)
    env.abort()
    env.close()
    assert echo.was_left.wait(60)
    assert eventually(lambda: _connections_to(echo.server_port) == 0)


def _connections_to(port):
    connections = psutil.Process().net_connections("tcp")
    return sum(each.raddr != () and each.raddr[1] == port and each.status == "ESTABLISHED" for each in connections)


def test_link_that_broke_is_renewed(make):
    env = make(doors={3141: lambda _: "fine"})
    env._doors._link.close()
    assert eventually(lambda: env._doors._link.is_lost)
    assert stdout(env, "print(fetch('http://127.0.0.1:3141'))") == "fine\n"


def test_link_that_broke_with_all_connections_open_is_renewed(make):
    with tcp_server(echo_back) as port:
        env = make(doors={9000: f"tcp://127.0.0.1:{port}"})
        code = f"""
held = [socket.create_connection(('127.0.0.1', 9000), 60) for _ in range({MAX_DOOR_CONNECTIONS})]
for c in held:
    c.sendall(b'x')
print(sum(c.recv(1) == b'x' for c in held))
"""
        assert stdout(env, code) == f"{MAX_DOOR_CONNECTIONS}\n"
        env._doors._link.close()
        assert eventually(lambda: env._doors._link.is_lost)
        assert stdout(env, "print(raw(9000, b'again', end=True))") == "b'again'\n"


def test_pickled_environment_has_doors():
    env = CodingEnv(provider="local", doors={8000: "http://127.0.0.1:9"}, variables={"A": "b"})
    again = pickle.loads(pickle.dumps(env))
    assert again.doors.targets == {8000: "http://127.0.0.1:9"}
    assert again.settings.variables == {"A": "b"}


@pytest.mark.parametrize(
    ("doors", "message"),
    [
        ([8000], "Expected doors= to map ports"),
        ({0: "http://x"}, "Expected the port of a door, from 1 to 65535, got 0"),
        ({"8000": "http://x"}, "Expected the port of a door"),
        ({True: "http://x"}, "Expected the port of a door"),
        ({70_000: "http://x"}, "Expected the port of a door"),
        ({8000: 30_000}, "Expected a door to lead to a URL, a ServerTarget, an Egress or a function, got 30000"),
        ({8000: "127.0.0.1:30000"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "http://"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "ftp://host"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "tcp://host"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "http://host:99999"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "http://user:password@host"}, "Expected a door to lead to http://HOST:PORT"),
        ({8000: "tcp://host:1/path"}, "Expected only a host and a port"),
        (dict.fromkeys(range(1, MAX_DOORS + 2), "http://x"), f"Expected at most {MAX_DOORS} doors"),
    ],
)
def test_invalid_doors(doors, message):
    with pytest.raises(ConfigurationError, match=message):
        CodingEnv(provider="local", doors=doors)


@pytest.mark.parametrize("variables", [["A"], {"A": 1}, {"": "x"}, {"A=B": "x"}, {"A": "x\0"}])
def test_invalid_variables(variables):
    with pytest.raises(ConfigurationError, match="Expected variables="):
        CodingEnv(provider="local", variables=variables)
