from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coding_gym.datasets import ChatPolicy, collect, export_chat
from coding_gym.datasets.policies import chat as chat_policy_module
from coding_gym.errors import ConfigurationError, PolicyError, ProtocolError, TransportError, TransportTimeoutError

KEY = "sk-very-secret"
HELLO = "Let me see.\n\n```python\nprint('h\N{LATIN SMALL LETTER E WITH ACUTE}', 6 * 7)\n```\n"


class Endpoint(ThreadingHTTPServer):
    """Chat completions endpoint whose responses are computed by a function."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests = []
        self.headers = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions"
        self.server.requests.append(body)
        self.server.headers.append(dict(self.headers))
        status, headers, data = self.server.answer(body, len(self.server.requests))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def completion(content, **message):
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
    answer = {"id": "1", "model": "tiny-1", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
    return 200, {}, json.dumps(answer).encode()


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setattr(chat_policy_module, "_INITIAL_PAUSE", 0.01)
    servers = []

    def serve(answer):
        server = Endpoint(answer)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def ask(pool, tmp_path):
    def run(policy, episodes=1, **options):
        arguments = {"max_steps": 2, "seed": 1, "path": tmp_path / "dataset", **options}
        return collect(
            "CodingEnv-v0", policy, episodes, pool=pool, env_options={"screen": None, "step_timeout": 10}, **arguments
        )

    return run


def test_conversation_is_recorded_without_api_key(endpoint, ask, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", KEY)
    server = endpoint(lambda body, _: completion(HELLO if len(body["messages"]) < 3 else "1/0", reasoning_content="hm"))
    policy = ChatPolicy("tiny", base_url=server.url, api_key_env="MY_KEY", parameters={"temperature": 0.5}, system="Be brief.")
    dataset = ask(policy)
    first, second = server.requests
    assert first["model"] == "tiny"
    assert first["temperature"] == 0.5
    assert first["seed"] != second["seed"]
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Begin."}]
    assert second["messages"][2:] == [
        {"role": "assistant", "content": HELLO},
        {"role": "user", "content": "h\N{LATIN SMALL LETTER E WITH ACUTE} 42"},
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    steps = dataset[0].steps
    assert steps[1].action == "print('h\N{LATIN SMALL LETTER E WITH ACUTE}', 6 * 7)\n"
    assert steps[2].action == "1/0"
    assert steps[1].decision["content"] == HELLO
    assert steps[1].decision["reasoning"] == "hm"
    assert steps[1].decision["usage"] == {"prompt_tokens": 3, "completion_tokens": 5}
    export_chat(dataset, tmp_path / "chat.jsonl")
    messages = json.loads((tmp_path / "chat.jsonl").read_text())["messages"]
    assert messages == [*second["messages"], {"role": "assistant", "content": "1/0"}]
    assert all(KEY.encode() not in file.read_bytes() for file in (tmp_path / "dataset").iterdir())


def test_busy_endpoint_is_retried_after_requested_delay(endpoint, ask):
    busy = [(429, {"Retry-After": "0.2"}, b"slow down"), (503, {}, b""), (500, {"Retry-After": "soon"}, b"")]
    server = endpoint(lambda body, count: busy[count - 1] if count <= 3 else completion("1"))
    began = time.monotonic()
    ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)
    assert time.monotonic() - began >= 0.2
    assert len(server.requests) == 4
    # Retries send the same request.
    assert len({json.dumps(request) for request in server.requests}) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {}, b'{"error": "bad key"}'), ProtocolError, r'answered 401: \{"error": "bad key"\}'),
        ((503, {}, b"tired"), ProtocolError, "answered 503: tired"),
        ((200, {}, b"<html>"), ProtocolError, "Expected a chat completion"),
        ((200, {}, b'{"choices": []}'), ProtocolError, "Expected a chat completion"),
    ],
)
def test_endpoint_errors_raise_policy_error(endpoint, ask, answer, kind, said):
    server = endpoint(lambda body, _: answer)
    with pytest.raises(PolicyError, match=said) as raised:
        ask(ChatPolicy("tiny", base_url=server.url, retries=1))
    assert isinstance(raised.value.__cause__, kind)
    assert len(server.requests) == (2 if answer[0] == 503 else 1)


def test_hanging_or_unreachable_endpoint_raises_policy_error(endpoint, ask, tmp_path):
    go_on = threading.Event()
    server = endpoint(lambda body, _: (go_on.wait(20), completion("1"))[1])
    with pytest.raises(PolicyError, match=r"did not answer within 0.2 s") as raised:
        ask(ChatPolicy("tiny", base_url=server.url, retries=0, timeout=0.2))
    go_on.set()
    assert isinstance(raised.value.__cause__, TransportTimeoutError)
    with pytest.raises(PolicyError, match="cannot be reached") as raised:
        ask(ChatPolicy("tiny", base_url="http://127.0.0.1:9/v1", retries=0), path=tmp_path / "other")
    assert isinstance(raised.value.__cause__, TransportError)


def test_lone_surrogates_in_answers_are_replaced(endpoint, ask):
    server = endpoint(lambda body, _: completion("print('\ud800 \x00')"))
    step = ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)[0].steps[1]
    assert step.action == step.decision["content"] == "print('\ufffd \x00')"


def test_answer_without_text_becomes_empty_action(endpoint, ask):
    server = endpoint(lambda body, _: completion(None))
    assert ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)[0].actions == [""]


def test_slow_answers_are_awaited_concurrently(endpoint, ask):
    together = threading.Barrier(4, timeout=20)

    def answer(body, count):
        together.wait()
        return completion("1")

    server = endpoint(answer)
    assert len(ask(ChatPolicy("tiny", base_url=server.url), 8, max_steps=1, sessions=4)) == 8


def test_invalid_base_url_is_refused():
    with pytest.raises(ConfigurationError, match="Expected base_url="):
        ChatPolicy("tiny", base_url="localhost:8000")
