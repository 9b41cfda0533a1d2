"""HTTP routes of processes, as clients in other languages use them."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import threading

import msgspec
import pytest

from coding_gym.client.http import HttpClient
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from coding_gym_server.protocol.processes import EVENT_FRAMES
from tests.support.timing import eventually


@pytest.fixture
def http(sandbox):
    with contextlib.closing(HttpClient(sandbox.address)) as client:
        yield client


@pytest.fixture
def base(session):
    session.reset()
    return f"/sessions/{session.id}"


def post(http, path, body):
    with http.request("POST", path, body=json.dumps(body).encode() if isinstance(body, dict) else body) as response:
        return response.read()


def test_exec_responds_once_process_has_exited(http, base):
    body = {"command": "cat; echo err >&2; exit 4", "stdin": base64.b64encode(b"\x00\xff").decode()}
    answer = json.loads(post(http, f"{base}/exec", body))
    assert base64.b64decode(answer["stdout"]) == b"\x00\xff"
    assert base64.b64decode(answer["stderr"]) == b"err\n"
    assert answer["result"] == {
        "type": "exited",
        "exit_code": 4,
        "signal": None,
        "timed_out": False,
        "dropped_stdout": 0,
        "dropped_stderr": 0,
        "lost": None,
        "limit_exceeded": False,
    }


@pytest.mark.parametrize("size", [(1 << 20) - 8, (1 << 20) - 7, 5_000_000])
def test_large_output_is_encoded_in_parts(http, base, size):
    body = {"command": f"yes | head -c {size}; printf 12345678 >&2"}
    with http.request("POST", f"{base}/exec", body=json.dumps(body).encode()) as response:
        is_whole = response.headers["content-length"] is not None
        answer = json.loads(response.read())
    assert is_whole is (size + 8 <= 1 << 20)
    assert base64.b64decode(answer["stdout"]) == (b"y\n" * size)[:size]
    assert base64.b64decode(answer["stderr"]) == b"12345678"
    assert answer["result"]["exit_code"] == 0


def test_exec_counts_what_it_drops(http, base):
    for keep, kept in (("first", b"12"), ("last", b"56")):
        answer = json.loads(post(http, f"{base}/exec", {"command": "printf 123456", "max_output_bytes": 2, "keep": keep}))
        assert (base64.b64decode(answer["stdout"]), answer["result"]["dropped_stdout"]) == (kept, 4)


def test_stream_has_one_event_per_line(http, base):
    events = [json.loads(line) for line in post(http, f"{base}/processes", {"command": ["echo", "hello"]}).splitlines()]
    assert [event["type"] for event in events] == ["started", "output", "exited"]
    assert base64.b64decode(events[1]["stdout"]) == b"hello\n"


def test_stream_has_frames_for_clients_that_accept_them(http, base):
    body = json.dumps({"command": "printf '\\0\\377'"}).encode()
    with http.request("POST", f"{base}/processes", body=body, accept=EVENT_FRAMES) as response:
        events = [msgspec.msgpack.decode(frame) for frame in http.frames(response)]
    assert [event["type"] for event in events] == ["started", "output", "exited"]
    assert events[1]["stdout"] == b"\x00\xff"


def test_client_refuses_a_stream_in_another_form(http, base):
    body = json.dumps({"command": "true"}).encode()
    with (
        http.request("POST", f"{base}/processes", body=body) as response,
        pytest.raises(ProtocolError, match=r"sends application/x-ndjson instead of"),
    ):
        next(http.frames(response))


@pytest.mark.parametrize("size", [(1 << 16) - 1, 1 << 16, (1 << 18) + 1, 5_000_000])
def test_large_data_passes_unchanged(session, base, size):
    data = random.Random(size).randbytes(size)
    result = session.http.processes.run("tee /dev/stderr", stdin=data)
    assert (result.stdout, result.stderr) == (data, data)


def test_exec_ends_with_its_client(sandbox, session, base):
    client = HttpClient(sandbox.address, timeout=0.5)
    with pytest.raises(TransportError):
        post(client, f"{base}/exec", {"command": "sleep 60"})
    client.close()
    processes = session.http.processes
    assert eventually(lambda: [info.result is not None for info in processes.list()] == [True])


def test_process_started_in_session_without_episode_begins_one(connect, sandbox, http):
    session = connect(sandbox)
    answer = json.loads(post(http, f"/sessions/{session.id}/exec", {"command": "pwd"}))
    assert answer["result"]["exit_code"] == 0
    assert session.run("import os; print(os.getcwd())").stdout == base64.b64decode(answer["stdout"]).decode()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", {}, {"command": 1}, {"command": "true", "unknown": 1}, {"command": "a\0"}])
def test_invalid_bodies_are_refused(http, base, body):
    for path in ("exec", "processes"):
        with pytest.raises(ConfigurationError):
            post(http, f"{base}/{path}", body)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sessions/unknown/exec"),
        ("GET", "/sessions/unknown/processes"),
        ("GET", "/sessions/unknown/files"),
        ("GET", "/sessions//processes"),
        ("POST", "/contexts/unknown/exec"),
    ],
)
def test_unknown_sessions_are_not_found(http, method, path):
    body = json.dumps({"command": "true"}).encode() if method == "POST" else None
    with pytest.raises(ProtocolError, match="404"), http.request(method, path, body=body):
        pass


def test_concurrent_execs_begin_one_episode(connect, sandbox, http):
    session = connect(sandbox)
    answers = []

    def run():
        with contextlib.closing(HttpClient(sandbox.address)) as client:
            answers.append(json.loads(post(client, f"/sessions/{session.id}/exec", {"command": "pwd"}))["stdout"])

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert len(set(answers)) == 1


def test_exec_during_reset_waits_for_it(session, http, base):
    results = []
    are_over = threading.Event()

    def run():
        with contextlib.closing(HttpClient(http._address)) as client:
            while not are_over.is_set():
                answer = json.loads(post(client, f"{base}/exec", {"command": "echo ok"}))
                results.append((answer["result"]["exit_code"], answer["stdout"]))

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(20):
        session.reset()
    are_over.set()
    thread.join()
    # A reset kills the processes of the previous episode.
    assert results
    assert set(results) <= {(0, base64.b64encode(b"ok\n").decode()), (137, ""), (137, base64.b64encode(b"ok\n").decode())}
    assert session.run("1").stdout == "1\n"
